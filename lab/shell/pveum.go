package shell

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pveumCommands are those of pveum that an administrator makes accounts with.
func pveumCommands() map[string]subcommand {
	const (
		user  = "/access/users/{userid}"
		token = user + "/token/{tokenid}"
	)

	return map[string]subcommand{
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
	}
}

// pveum makes accounts as root; an object that the API answers with is printed as a table, as there.
func (s *Server) pveum(ctx context.Context, c call) error {
	for words := min(3, len(c.words)-1); words > 0; words-- {
		sub, known := pveumCommands()[strings.Join(c.words[1:1+words], " ")]
		if !known {
			continue
		}

		verb, path, _ := strings.Cut(sub.call, " ")

		a, err := parseArguments(c.words[1+words:], sub.usage, func(name string) (known, boolean bool) {
			return s.api.Option(verb, path, name)
		})
		if err != nil {
			return err
		}

		values := a.parameters()
		for name, value := range values {
			if in := "{" + name + "}"; strings.Contains(path, in) {
				path = strings.ReplaceAll(path, in, value[0])

				delete(values, name)
			}
		}

		answer, err := s.callAPI(ctx, c, verb, path, values)
		if made, isObject := answer.(map[string]any); err == nil && isObject {
			c.printObject(made)
		}

		return err
	}

	return usageError{"ERROR: the lab's pveum has no such command\nUSAGE: pveum <COMMAND> [ARGS] [OPTIONS]"}
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
