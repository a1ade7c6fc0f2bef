package terminal

import (
	"cmp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// narrowest is how many characters of a cell are left when its column is shortened.
const narrowest = 12

// Table aligns rows, of which the first is the heading. A table that is wider than width goes without the optional
// columns, one after the other; after that its widest columns are shortened, and then its lines. 0 = any width. An
// empty cell is a dash.
func Table(rows [][]string, width int, optional ...string) string {
	for _, column := range optional {
		i := slices.Index(rows[0], column)
		if i < 0 || !isWider(align(rows), width) {
			continue
		}

		narrower := make([][]string, 0, len(rows))
		for _, row := range rows {
			narrower = append(narrower, slices.Delete(slices.Clone(row), i, i+1))
		}

		rows = narrower
	}

	for isWider(align(rows), width) {
		shorter := shortenWidest(rows)
		if shorter == nil {
			break
		}

		rows = shorter
	}

	lines := strings.Split(align(rows), "\n")
	for i, line := range lines {
		lines[i] = Shorten(line, width)
	}

	return strings.Join(lines, "\n")
}

// shortenWidest returns rows whose widest column has a character less; nil = none can.
func shortenWidest(rows [][]string) [][]string {
	at, widest := -1, narrowest

	for i := range rows[0] {
		for _, row := range rows {
			if n := utf8.RuneCountInString(row[i]); n > widest {
				at, widest = i, n
			}
		}
	}

	if at < 0 {
		return nil
	}

	shorter := make([][]string, 0, len(rows))

	for _, row := range rows {
		row = slices.Clone(row)
		row[at] = Shorten(row[at], widest-1)
		shorter = append(shorter, row)
	}

	return shorter
}

// Shorten cuts a text that is wider than width, and ends it with an ellipsis; 0 = any width.
func Shorten(text string, width int) string {
	if runes := []rune(text); width > 0 && len(runes) > width {
		return string(runes[:width-1]) + "…"
	}

	return text
}

func isWider(text string, width int) bool {
	return width > 0 && slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		return utf8.RuneCountInString(line) > width
	})
}

func align(rows [][]string) string {
	var b strings.Builder

	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)

	for _, row := range rows {
		cells := make([]string, 0, len(row))
		for _, cell := range row {
			cells = append(cells, cmp.Or(cell, "-"))
		}

		_, _ = w.Write([]byte(strings.Join(cells, "\t") + "\n")) // writes to memory do not fail
	}

	_ = w.Flush()

	return b.String()
}

// Wrap breaks a text between words into indented lines of a width, 0 = any; continued ones are indented once more.
func Wrap(text, indent string, width int) string { return WrapAt(text, indent, indent+"  ", width) }

// WrapAt is [Wrap] with the indents of the first line and of continued ones; the first may be a text.
func WrapAt(text, first, continued string, width int) string {
	if width == 0 {
		return first + text + "\n"
	}

	var b strings.Builder

	line, empty := first, true

	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			b.WriteString(line + "\n")

			line, empty = continued, true
		}

		if !empty {
			line += " "
		}

		line, empty = line+word, false
	}

	return b.String() + line + "\n"
}

// Fit wraps the lines of a text that are wider than width, 0 = any: below their last column, which two blanks begin, or
// else two blanks deeper than the line begins.
func Fit(text string, width int) string {
	if width == 0 {
		return text
	}

	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if utf8.RuneCountInString(line) <= width {
			continue
		}

		content := strings.TrimLeft(line, " ")
		indent := line[:len(line)-len(content)]
		first, continued := indent, indent+"  "

		if at := strings.LastIndex(content, "  ") + 2; at > 1 && utf8.RuneCountInString(indent+content[:at]) <= width/2 {
			first, content = indent+content[:at], content[at:]
			continued = strings.Repeat(" ", utf8.RuneCountInString(first))
		}

		lines[i] = strings.TrimSuffix(WrapAt(content, first, continued, width), "\n")
	}

	return strings.Join(lines, "\n")
}
