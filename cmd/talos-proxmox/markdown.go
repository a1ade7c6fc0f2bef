package main

import "strings"

// table writes rows as a Markdown table, the first of them its head.
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

// code is a name as code; one that has backticks or line breaks cannot end it.
func code(name string) string {
	return "`" + strings.NewReplacer("`", "'", "\r", " ", "\n", " ", "](", "] (").Replace(name) + "`"
}

// escape keeps text from ending a table's cell, and from being taken for HTML, a link, an image or a mention.
func escape(text string) string {
	return strings.NewReplacer(
		"\r", " ", "\n", " ", "](", "] (", "|", `\|`, "<", "&lt;", ">", "&gt;", "@", "&#64;",
	).Replace(strings.TrimSpace(text))
}
