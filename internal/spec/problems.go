package spec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Path leads to the value: clusters[0].workers[1].memoryMiB.
	Path string
	// Value is what is set there, as JSON; empty where nothing is, or where it must not be shown.
	Value string
	// Message says what is wrong and ends with what to do about it.
	Message string
}

// String returns path, value and message in one line.
func (p Problem) String() string {
	if p.Value == "" {
		return p.Path + ": " + p.Message
	}

	return p.Path + ": " + p.Value + " " + p.Message
}

// Problems is the error of [Load]: everything that is wrong with a configuration, in order of the paths.
type Problems []Problem

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}

	return strings.Join(lines, "\n")
}

// report adds a problem; a nil value is not shown.
func (p *Problems) report(path string, value any, format string, arguments ...any) {
	*p = append(*p, Problem{Path: path, Value: show(value), Message: fmt.Sprintf(format, arguments...)})
}

// without takes values that are stored encrypted out of the problems.
func (p Problems) without(found secrets) Problems {
	for i := range p {
		if found.touch(p[i].Path) {
			p[i].Value = ""
		}
	}

	return p
}

// under says whether a path is another one, or leads below it.
func under(path, above string) bool {
	rest, below := strings.CutPrefix(path, above)

	return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// has says whether a path, or something below it, is reported already.
func (p *Problems) has(path string) bool {
	return slices.ContainsFunc(*p, func(problem Problem) bool { return under(problem.Path, path) })
}

// sorted returns the problems in order of their paths, numbers by value, each once.
func (p Problems) sorted() Problems {
	sorted := slices.Clone(p)
	slices.SortStableFunc(sorted, func(a, b Problem) int { return compareNatural(a.Path, b.Path) })

	return slices.CompactFunc(sorted, func(a, b Problem) bool { return a == b })
}

// show returns a value as short JSON.
func show(value any) string {
	const most = 80

	if value == nil {
		return ""
	}

	var text strings.Builder

	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(value); err != nil {
		return ""
	}

	runes := []rune(strings.TrimSuffix(text.String(), "\n"))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}

	return string(runes)
}

// compareNatural compares texts with runs of digits as numbers: hosts[9] comes before hosts[10].
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		digitsA, digitsB := leadingDigits(a), leadingDigits(b)
		if digitsA != "" && digitsB != "" {
			shortA, shortB := strings.TrimLeft(digitsA, "0"), strings.TrimLeft(digitsB, "0")
			if len(shortA) != len(shortB) {
				return len(shortA) - len(shortB)
			}

			if order := strings.Compare(shortA, shortB); order != 0 {
				return order
			}

			a, b = a[len(digitsA):], b[len(digitsB):]

			continue
		}

		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}

		a, b = a[1:], b[1:]
	}

	return len(a) - len(b)
}

func leadingDigits(text string) string {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}

	return text[:end]
}
