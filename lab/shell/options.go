package shell

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
)

// arguments are a Proxmox command line taken apart.
type arguments struct {
	usage   string
	fixed   []string
	options map[string][]string
}

// parseArguments reads "--name value". Names of fixed arguments come in the usage: "qm resize <vmid> <disk> <size>"; has
// says which options there are. A boolean one goes without its value, as PVE's own parser has it.
func parseArguments(
	words []string, usage string, has func(name string) (known, boolean bool),
) (arguments, error) {
	a := arguments{usage: usage, options: map[string][]string{}}

	for i := 0; i < len(words); i++ {
		name, isOption := strings.CutPrefix(words[i], "--")
		if !isOption {
			a.fixed = append(a.fixed, words[i])

			continue
		}

		last := i+1 == len(words)

		switch known, boolean := has(name); {
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
	case len(a.fixed) < want:
		return a, usageError{"400 not enough arguments\n" + usage}
	case len(a.fixed) > want:
		return a, usageError{"400 too many arguments\n" + usage}
	default:
		return a, nil
	}
}

// get returns an option's value, empty without one.
func (a arguments) get(name string) string { return strings.Join(a.options[name], ",") }

var fixedName = regexp.MustCompile(`<(\w+)>`)

// parameters are all arguments as a call of the API has them.
func (a arguments) parameters() map[string][]string {
	all := maps.Clone(a.options)
	for i, name := range fixedName.FindAllStringSubmatch(a.usage, -1) {
		all[name[1]] = []string{a.fixed[i]}
	}

	return all
}
