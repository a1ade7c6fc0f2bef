package shell

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
)

// arguments is a parsed Proxmox command line.
type arguments struct {
	usage      string
	positional []string
	options    map[string][]string
}

// parseArguments parses "--name value" options and the positional arguments, whose names are in the usage: "qm resize
// <vmid> <disk> <size>". lookup returns whether an option exists and is boolean: then, as in PVE, its value can be
// omitted.
func parseArguments(
	words []string, usage string, lookup func(name string) (known, boolean bool),
) (arguments, error) {
	a := arguments{usage: usage, options: map[string][]string{}}

	for i := 0; i < len(words); i++ {
		name, isOption := strings.CutPrefix(words[i], "--")
		if !isOption {
			a.positional = append(a.positional, words[i])

			continue
		}

		last := i+1 == len(words)

		switch known, boolean := lookup(name); {
		case !known:
			return a, usageError{fmt.Sprintf("Unknown option: %s\n400 unable to parse option\n%s", name, usage)}
		case boolean && (last || strings.HasPrefix(words[i+1], "-")):
			a.options[name] = []string{"1"}
		case last:
			return a, usageError{fmt.Sprintf("Option %s requires an argument\n400 unable to parse option\n%s", name, usage)}
		default:
			i++
			a.options[name] = []string{words[i]}
		}
	}

	want := strings.Count(usage, "<")

	switch {
	case len(a.positional) < want:
		return a, usageError{"400 not enough arguments\n" + usage}
	case len(a.positional) > want:
		return a, usageError{"400 too many arguments\n" + usage}
	default:
		return a, nil
	}
}

// get returns an option's value, or "".
func (a arguments) get(name string) string { return strings.Join(a.options[name], ",") }

var positionalName = regexp.MustCompile(`<(\w+)>`)

// parameters returns all arguments as parameters of an API call.
func (a arguments) parameters() map[string][]string {
	all := maps.Clone(a.options)
	for i, name := range positionalName.FindAllStringSubmatch(a.usage, -1) {
		all[name[1]] = []string{a.positional[i]}
	}

	return all
}
