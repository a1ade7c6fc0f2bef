package schema

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// A value format is a format of single values: what they look like, and PVE's error for others, in which "%" stands
// for the value. A format with "-list" behind its name is a list of such values.
type valueFormat struct {
	Pattern   pattern
	Complaint string
}

// check returns the complaint, or nothing.
func (f valueFormat) check(value string) string {
	if f.Pattern.Regexp == nil || f.Pattern.MatchString(value) {
		return ""
	}

	return strings.ReplaceAll(f.Complaint, "%", value)
}

// addressFormats are the formats of values that a pattern alone does not tell, by their names; what none of them takes, the
// value format of the name may.
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

// cpuFormat is that of a VM's processor, whose models PVE knows by name.
const cpuFormat = "pve-vm-cpu-conf"

// checkCPUModel complains about a processor that PVE does not know; the lab has no models of its own.
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

// The types of parameters, by PVE's names.
const (
	Boolean = "boolean"
	Integer = "integer"
	Number  = "number"
	Array   = "array"
)

// Rule is what a parameter, or a part of a property string, must be; the names are those of PVE's description.
type Rule struct {
	Type                 string
	Enum                 []string
	Minimum, Maximum     *float64
	MinLength, MaxLength int
	// Pattern is matched against the whole value; it is in Go's notation.
	Pattern *pattern
	// Format is the name of one of PVE's formats, Properties are the parts of a property string.
	Format     string
	Properties map[string]Rule
	// Items is the rule of a list's elements.
	Items *Rule
	// Requires is the parameter without which this one means nothing.
	Requires string
	Optional bool
	// DefaultKey is of the part that may go without its key.
	DefaultKey bool `json:"default_key"`
	// Alias is the part for which this one is written, its own key being the value of the part KeyAlias: "virtio=MAC" is
	// "model=virtio,macaddr=MAC".
	Alias, KeyAlias string
}

type pattern struct{ *regexp.Regexp }

// UnmarshalText compiles the expression.
func (p *pattern) UnmarshalText(text []byte) (err error) {
	p.Regexp, err = regexp.Compile("^(?:" + string(text) + ")$")

	return err
}
