package shell

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pveum makes accounts as root.
func (s *Server) pveum(ctx context.Context, c call) error {
	const (
		user  = "/access/users/{userid}"
		token = user + "/token/{tokenid}"
	)

	return s.program(ctx, c, map[string]subcommand{
		"role add":          {usage: "pveum role add <roleid> [OPTIONS]", call: "create /access/roles"},
		"role modify":       {usage: "pveum role modify <roleid> [OPTIONS]", call: "set /access/roles/{roleid}"},
		"user add":          {usage: "pveum user add <userid> [OPTIONS]", call: "create /access/users"},
		"user modify":       {usage: "pveum user modify <userid> [OPTIONS]", call: "set " + user},
		"user delete":       {usage: "pveum user delete <userid>", call: "delete " + user},
		"user token add":    {usage: "pveum user token add <userid> <tokenid> [OPTIONS]", call: "create " + token},
		"user token modify": {usage: "pveum user token modify <userid> <tokenid> [OPTIONS]", call: "set " + token},
		"user token remove": {usage: "pveum user token remove <userid> <tokenid>", call: "delete " + token},
		"group add":         {usage: "pveum group add <groupid> [OPTIONS]", call: "create /access/groups"},
		"acl modify":        {usage: "pveum acl modify <path> [OPTIONS]", call: "set /access/acl"},
	})
}

// printObject prints an object as Proxmox' commands do: with a frame.
func (c call) printObject(o map[string]any) {
	const key, value = "key", "value"

	first, second := len(key), len(value)
	for name, v := range o {
		first, second = max(first, len(name)), max(second, len(fmt.Sprint(v)))
	}

	rule := func(line string) string {
		return strings.Repeat(line, first+2) + "%s" + strings.Repeat(line, second+2)
	}
	row := fmt.Sprintf("│ %%-%ds │ %%-%dv │\n", first, second)

	c.printf("┌"+rule("─")+"┐\n", "┬")
	c.printf(row, key, value)

	for i, name := range slices.Sorted(maps.Keys(o)) {
		line := cmp.Or(map[bool]string{true: "═"}[i == 0], "─")
		left, middle, right := "├", "┼", "┤"

		if i == 0 {
			left, middle, right = "╞", "╪", "╡"
		}

		c.printf(left+rule(line)+right+"\n", middle)
		c.printf(row, name, o[name])
	}

	c.printf("└"+rule("─")+"┘\n", "┴")
}
