// Package problem has what a person must read: what is wrong, where, and what to do about it, whoever finds it.
package problem

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Severity says what a problem means for whoever asked.
type Severity int

// The severities, the gravest first.
const (
	Error   Severity = iota // what was asked for cannot be had
	Warning                 // it can, and better were otherwise
	Fine                    // nothing is wrong, which a report says as well
)

// String is the word that a report has for it.
func (s Severity) String() string { return [...]string{"PROBLEM", "warning", "ok"}[s] }

// Problem is one thing that is wrong.
type Problem struct {
	// Path says with what: the way to a value in the stack file or in arguments (clusters[0].workers[1].memoryMiB), a
	// resource, a node. Empty = the message says it.
	Path string `json:"about"`
	// Place is where a file has it: Pulumi.prod.yaml:31; empty = not known.
	Place string `json:"-"`
	// Value is what is set there, as JSON; empty where nothing is, or where it must not be shown.
	Value string `json:"value,omitempty"`
	// Message says what is wrong and ends with what to do about it.
	Message  string   `json:"problem"`
	Severity Severity `json:"-"`
	// Of is what it was found at and is listed under, where that is not the path: a host, the URN of a resource.
	Of string `json:"-"`
}

// New is a problem of which the value is shown as JSON; nil is not shown.
func New(path string, value any, format string, arguments ...any) Problem {
	return Problem{Path: path, Value: Show(value), Message: fmt.Sprintf(format, arguments...)}
}

// String returns place, path, value and message in one line.
func (p Problem) String() string {
	said := p.Message
	if p.Value != "" && p.Path != "" {
		said = p.Value + " " + said
	}

	for _, before := range []string{p.Path, p.Place} {
		if before != "" {
			said = before + ": " + said
		}
	}

	return said
}

// List is everything that is wrong, found at once; it is the error that says so.
type List []Problem

// Error returns one line for each problem.
func (l List) Error() string { return strings.Join(l.Lines(), "\n") }

// Lines returns one line for each problem.
func (l List) Lines() []string {
	lines := make([]string, len(l))
	for i, problem := range l {
		lines[i] = problem.String()
	}

	return lines
}

// Add adds an error, as [New] makes it.
func (l *List) Add(path string, value any, format string, arguments ...any) {
	*l = append(*l, New(path, value, format, arguments...))
}

// Warn adds a warning, as [New] makes it.
func (l *List) Warn(path string, value any, format string, arguments ...any) {
	l.Add(path, value, format, arguments...)
	(*l)[len(*l)-1].Severity = Warning
}

// Errors returns those that prevent what was asked for.
func (l List) Errors() List { return l.with(Error) }

// Warnings returns those that do not.
func (l List) Warnings() List { return l.with(Warning) }

func (l List) with(severity Severity) (some List) {
	for _, problem := range l {
		if problem.Severity == severity {
			some = append(some, problem)
		}
	}

	return some
}

// Under says whether a path is another one, or leads below it.
func Under(path, above string) bool {
	rest, below := strings.CutPrefix(path, above)

	return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Has says whether a path, or something below it, is reported already.
func (l List) Has(path string) bool {
	return slices.ContainsFunc(l, func(problem Problem) bool { return Under(problem.Path, path) })
}

// Sorted returns the problems in order of their paths, numbers by value, each once.
func (l List) Sorted() List {
	sorted := slices.Clone(l)
	slices.SortStableFunc(sorted, func(a, b Problem) int { return compareNatural(a.Path, b.Path) })

	return slices.Compact(sorted)
}

// Show returns a value as short JSON.
func Show(value any) string {
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

// Count writes a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", n, noun)
}
