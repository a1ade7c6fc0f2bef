package schema

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// valueFormat is a format of single values: a pattern and PVE's error for others, in which "%" stands for the value. A
// format name with the suffix "-list" means a list of such values.
type valueFormat struct {
	Pattern   pattern
	Complaint string
}

// check returns the error, or "".
func (f valueFormat) check(value string) string {
	if f.Pattern.Regexp == nil || f.Pattern.MatchString(value) {
		return ""
	}

	return strings.ReplaceAll(f.Complaint, "%", value)
}

// addressFormats are formats, by name, that need more than a pattern. A value that none of them accepts is checked by
// the value format of that name.
var addressFormats = map[string]func(value string) bool{
	"address":         func(value string) bool { return isAddress(value, 32) || isAddress(value, 128) },
	"ipv4":            func(value string) bool { return isAddress(value, 32) },
	"ipv6":            func(value string) bool { return isAddress(value, 128) },
	"CIDR":            func(value string) bool { return isNetwork(value, 32) || isNetwork(value, 128) },
	"pve-ipv4-config": func(value string) bool { return isNetwork(value, 32) },
	"pve-ipv6-config": func(value string) bool { return isNetwork(value, 128) },
}

func isAddress(value string, bits int) bool {
	a, err := netip.ParseAddr(value)

	return err == nil && a.BitLen() == bits && a.Zone() == ""
}

func isNetwork(value string, bits int) bool {
	p, err := netip.ParsePrefix(value)

	return err == nil && p.Addr().BitLen() == bits && p.Bits() >= 8
}

// cpuFormat is the format of a VM's CPU, whose models PVE knows by name.
const cpuFormat = "pve-vm-cpu-conf"

// checkCPUModel refuses unknown CPU models; the lab has no custom ones.
func checkCPUModel(value string) string {
	found, _ := splitProperties(propertyFormats[cpuFormat], value)
	model := found["cputype"]

	custom, isCustom := strings.CutPrefix(model, "custom-")

	switch {
	case isCustom:
		return "Custom cputype '" + custom + "' not found\n"
	case model != "" && !slices.Contains(cpuModels, model):
		return "Built-in cputype '" + model + "' is not defined (missing 'custom-' prefix?)\n"
	default:
		return ""
	}
}

// Types of parameters, with PVE's names.
const (
	Boolean = "boolean"
	Integer = "integer"
	Number  = "number"
	Array   = "array"
)

// Rule validates a parameter or a part of a property string; fields have the names of PVE's description.
type Rule struct {
	Type                 string
	Enum                 []string
	Minimum, Maximum     *float64
	MinLength, MaxLength int
	// Pattern must match the whole value; it is in Go's syntax.
	Pattern *pattern
	// Format is the name of a PVE format, Properties are the parts of a property string.
	Format     string
	Properties map[string]Rule
	// Items is the rule of a list's elements.
	Items *Rule
	// Requires names a parameter that must be set too.
	Requires string
	Optional bool
	// DefaultKey marks the part whose key can be omitted.
	DefaultKey bool `json:"default_key"`
	// Alias is the part that this part sets, while its own key becomes the value of the part KeyAlias: "virtio=MAC" is
	// "model=virtio,macaddr=MAC".
	Alias, KeyAlias string
}

type pattern struct{ *regexp.Regexp }

// UnmarshalText compiles the expression.
func (p *pattern) UnmarshalText(text []byte) (err error) {
	p.Regexp, err = regexp.Compile("^(?:" + string(text) + ")$")

	return err
}
