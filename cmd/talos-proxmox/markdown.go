package main

import "strings"

// table formats rows as a Markdown table; the first row is the header.
func table(rows [][]string) string {
	var b strings.Builder

	for i, row := range rows {
		cells := make([]string, len(row))
		for j, cell := range row {
			cells[j] = escape(cell)
		}

		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")

		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}

	return b.String()
}

// code formats a name as code, which backticks and line breaks in the name cannot end.
func code(name string) string {
	return "`" + strings.NewReplacer("`", "'", "\r", " ", "\n", " ", "](", "] (").Replace(name) + "`"
}

// escape escapes text for a table's cell, so that it is no HTML, link, image or mention.
func escape(text string) string {
	return strings.NewReplacer(
		"\r", " ", "\n", " ", "](", "] (", "|", `\|`, "<", "&lt;", ">", "&gt;", "@", "&#64;",
	).Replace(strings.TrimSpace(text))
}
