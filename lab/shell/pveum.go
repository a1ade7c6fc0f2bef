package shell

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pveum manages accounts as root.
func (s *Server) pveum(ctx context.Context, c call) error {
	const (
		user  = "/access/users/{userid}"
		token = user + "/token/{tokenid}"
	)

	return s.dispatch(ctx, c, map[string]subcommand{
		"role add":          {usage: "pveum role add <roleid> [OPTIONS]", apiCall: "create /access/roles"},
		"role modify":       {usage: "pveum role modify <roleid> [OPTIONS]", apiCall: "set /access/roles/{roleid}"},
		"user add":          {usage: "pveum user add <userid> [OPTIONS]", apiCall: "create /access/users"},
		"user modify":       {usage: "pveum user modify <userid> [OPTIONS]", apiCall: "set " + user},
		"user delete":       {usage: "pveum user delete <userid>", apiCall: "delete " + user},
		"user token add":    {usage: "pveum user token add <userid> <tokenid> [OPTIONS]", apiCall: "create " + token},
		"user token modify": {usage: "pveum user token modify <userid> <tokenid> [OPTIONS]", apiCall: "set " + token},
		"user token remove": {usage: "pveum user token remove <userid> <tokenid>", apiCall: "delete " + token},
		"group add":         {usage: "pveum group add <groupid> [OPTIONS]", apiCall: "create /access/groups"},
		"acl modify":        {usage: "pveum acl modify <path> [OPTIONS]", apiCall: "set /access/acl"},
		"acl delete":        {usage: "pveum acl delete <path> [OPTIONS]", apiCall: "set /access/acl", fixed: "delete"},
	})
}

// printObject prints an object as a framed table, like Proxmox' commands.
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
		line, left, middle, right := "─", "├", "┼", "┤"
		if i == 0 {
			line, left, middle, right = "═", "╞", "╪", "╡"
		}

		c.printf(left+rule(line)+right+"\n", middle)
		c.printf(row, name, o[name])
	}

	c.printf("└"+rule("─")+"┘\n", "┴")
}
