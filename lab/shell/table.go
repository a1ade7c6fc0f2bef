package shell

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/interp"
)

// table is what zpool and zfs print: columns padded, or with -H separated by tabs and without a head.
type table struct {
	script, exact bool
	columns       []string
	names         []string
}

// parseTable reads -H, -p, -o columns and names; other short flags are passed over.
func parseTable(words []string, columns ...string) table {
	t := table{columns: columns}

	for i := 0; i < len(words); i++ {
		word := words[i]
		if !strings.HasPrefix(word, "-") {
			t.names = append(t.names, word)

			continue
		}

		t.script, t.exact = t.script || strings.Contains(word, "H"), t.exact || strings.Contains(word, "p")

		if at := strings.IndexByte(word, 'o'); at > 0 {
			value := word[at+1:]
			if value == "" && i+1 < len(words) {
				i++
				value = words[i]
			}

			t.columns = strings.Split(value, ",")
		}
	}

	return t
}

func (t table) print(c call, rows []map[string]string) error {
	lines := [][]string{}

	if !t.script {
		head := make([]string, 0, len(t.columns))
		for _, column := range t.columns {
			head = append(head, strings.ToUpper(column))
		}

		lines = append(lines, head)
	}

	for _, row := range rows {
		line := make([]string, 0, len(t.columns))

		for _, column := range t.columns {
			value, known := row[column]
			if !known {
				c.errorf("bad property list: invalid property '%s'\n", column)

				return interp.ExitStatus(statusUsage)
			}

			line = append(line, value)
		}

		lines = append(lines, line)
	}

	widths := make([]int, len(t.columns))

	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len(cell))
		}
	}

	for _, line := range lines {
		if t.script {
			c.printf("%s\n", strings.Join(line, "\t"))

			continue
		}

		for i := range line[:len(line)-1] {
			line[i] = fmt.Sprintf("%-*s", widths[i], line[i])
		}

		c.printf("%s\n", strings.Join(line, "  "))
	}

	return nil
}
