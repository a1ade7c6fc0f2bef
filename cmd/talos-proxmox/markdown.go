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

// escape keeps text from ending a table's cell, and from being taken for HTML or for a mention of someone.
func escape(text string) string {
	return strings.NewReplacer(
		"\n", " ", "|", `\|`, "<", "&lt;", ">", "&gt;", "@", "&#64;",
	).Replace(strings.TrimSpace(text))
}
