package shell

import (
	"fmt"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// arguments are a Proxmox command line taken apart.
type arguments struct {
	usage   string
	fixed   []string
	options map[string]string
}

// flags are the truth values that commands take beside those of a VM's configuration.
func flags() string {
	return " purge destroy-unreferenced-disks skiplock full force forceStop overrule-shutdown keepActive start unique delete-original verbose current noborder noheader human-readable enabled "
}

// parseArguments reads "--name value", "-name value", "--name=value" and flags with or without a value. known are the
// options beside a VM's configuration, each between blanks; names of fixed arguments come in the usage: "qm clone
// <vmid> <newid> [OPTIONS]".
func parseArguments(words []string, usage, known string, configuration bool) (arguments, error) {
	a := arguments{usage: usage, options: map[string]string{}}

	for i := 0; i < len(words); i++ {
		word := words[i]
		if len(word) < 2 || word[0] != '-' {
			a.fixed = append(a.fixed, word)

			continue
		}

		name, value, stated := strings.Cut(strings.TrimLeft(word, "-"), "=")
		isFlag := strings.Contains(flags(), " "+name+" ") || (configuration && datacentre.TypeOf(name) == datacentre.KeyBool)

		switch {
		case !strings.Contains(known, " "+name+" ") && (!configuration || datacentre.TypeOf(name) == datacentre.KeyUnknown):
			return a, usageError{fmt.Sprintf("Unknown option: %s\n400 unable to parse option\n%s", name, usage)}
		case stated:
		case i+1 < len(words) && (!isFlag || !strings.HasPrefix(words[i+1], "-")):
			i++
			value = words[i]
		case isFlag:
			value = "1"
		default:
			return a, usageError{fmt.Sprintf("Option %s requires an argument\n400 unable to parse option\n%s", name, usage)}
		}

		// A list may be set more than once.
		if before, again := a.options[name]; again && name == "delete" {
			value = before + "," + value
		}

		a.options[name] = value
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

func (a arguments) truth(name string) bool { return datacentre.Truth(a.options[name]) }

// vmid reads a fixed argument as a VMID.
func (a arguments) vmid(i int, name string) (int, error) {
	n, err := strconv.Atoi(a.fixed[i])
	if err != nil || n < 100 || n > 999999999 {
		return 0, usageError{
			fmt.Sprintf(
				"400 Parameter verification failed.\n%s: invalid format - value does not look like a valid VM ID\n\n%s", name,
				a.usage,
			),
		}
	}

	return n, nil
}

// configuration are the options that belong to a VM's configuration.
func (a arguments) configuration() datacentre.Config {
	c := datacentre.Config{}

	for name, value := range a.options {
		if datacentre.TypeOf(name) != datacentre.KeyUnknown {
			c[name] = value
		}
	}

	return c
}
