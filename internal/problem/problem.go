// Package problem defines problems for users: what is wrong, where, and what to do about it.
package problem

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Severity is the severity of a problem.
type Severity int

// The severities, the most severe first.
const (
	Error   Severity = iota // prevents what was requested
	Warning                 // does not prevent it
	Note                    // what will be done
	Fine                    // a passed check, for reports
)

// String returns the word in reports.
func (s Severity) String() string { return [...]string{"PROBLEM", "warning", "note", "ok"}[s] }

// Problem is a problem with one subject.
type Problem struct {
	// Path is the subject: the path of a value in the stack file or in arguments (clusters[0].workers[1].memoryMiB), a
	// resource, a node. Empty = the message names it.
	Path string `json:"about"`
	// Place is the location in a file: Pulumi.prod.yaml:31; empty = unknown.
	Place string `json:"place,omitempty"`
	// Value is the value at Path, as JSON; empty if there is none or it must not be shown.
	Value string `json:"value,omitempty"`
	// Message describes the problem and ends with what to do about it.
	Message  string   `json:"problem"`
	Severity Severity `json:"-"`
	// Heading is the heading under which it is listed, if that is not the path: a host, the URN of a resource.
	Heading string `json:"heading,omitempty"`
}

// New returns a problem with its value as JSON; nil is not shown.
func New(path string, value any, format string, arguments ...any) Problem {
	return Problem{Path: path, Value: EncodeValue(value), Message: fmt.Sprintf(format, arguments...)}
}

// String returns place, path, value and message in one line.
func (p Problem) String() string {
	text := p.Message
	if p.Value != "" && p.Path != "" {
		text = p.Value + " " + text
	}

	for _, before := range []string{p.Path, p.Place} {
		if before != "" {
			text = before + ": " + text
		}
	}

	return text
}

// List is a list of problems; it is an error.
type List []Problem

// Error returns the lines of [List.Lines].
func (l List) Error() string { return strings.Join(l.Lines(), "\n") }

// Lines returns one line for each problem. What several hosts have in common is one line.
func (l List) Lines() []string {
	lines := make([]string, 0, len(l))

	for _, problem := range l {
		if line := problem.String(); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}

	return lines
}

// Add adds an error, see [New].
func (l *List) Add(path string, value any, format string, arguments ...any) {
	*l = append(*l, New(path, value, format, arguments...))
}

// Warn adds a warning, see [New].
func (l *List) Warn(path string, value any, format string, arguments ...any) {
	l.Add(path, value, format, arguments...)
	(*l)[len(*l)-1].Severity = Warning
}

// Note adds a note, see [New].
func (l *List) Note(path, format string, arguments ...any) {
	l.Add(path, nil, format, arguments...)
	(*l)[len(*l)-1].Severity = Note
}

// Errors returns the problems with severity Error.
func (l List) Errors() List { return l.bySeverity(Error) }

// Warnings returns the problems with severity Warning.
func (l List) Warnings() List { return l.bySeverity(Warning) }

// Notes returns the problems with severity Note.
func (l List) Notes() List { return l.bySeverity(Note) }

// Passed returns the passed checks.
func (l List) Passed() List { return l.bySeverity(Fine) }

func (l List) bySeverity(severity Severity) (some List) {
	for _, problem := range l {
		if problem.Severity == severity {
			some = append(some, problem)
		}
	}

	return some
}

// Under reports whether a path equals parent or is below it.
func Under(path, parent string) bool {
	rest, ok := strings.CutPrefix(path, parent)

	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Has reports whether the list has a problem at or below a path.
func (l List) Has(path string) bool {
	return slices.ContainsFunc(l, func(problem Problem) bool { return Under(problem.Path, path) })
}

// Sorted returns the problems sorted by path, with numbers by value, without duplicates.
func (l List) Sorted() List {
	sorted := slices.Clone(l)
	slices.SortStableFunc(sorted, func(a, b Problem) int { return CompareNatural(a.Path, b.Path) })

	return slices.Compact(sorted)
}

// EncodeValue returns a value as JSON, shortened to 80 characters.
func EncodeValue(value any) string {
	const limit = 80

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
	if len(runes) > limit {
		return string(runes[:limit]) + "…"
	}

	return string(runes)
}

// CompareNatural compares strings, runs of digits as numbers: hosts[9] comes before hosts[10].
func CompareNatural(a, b string) int {
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

// Count returns a number with its noun: 1 node, 2 nodes.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", n, noun)
}
