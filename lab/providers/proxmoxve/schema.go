package proxmoxve

import (
	"maps"
	"slices"
	"strings"
)

// kind is the type of a property's value, or of its elements when it is a list.
type kind int

const (
	text kind = iota
	boolean
	integer
	number
	texts // a list of strings, as the element of a list
	block // a nested object
)

// effect is what a change of a property does to the machine.
type effect int

const (
	inherited effect = iota // as the block around it; at the top: in place
	inPlace
	reboot
	replace
	refused
	ignored // a change is not seen
)

// attribute is one property of a resource: its shape, what it is taken as when it is not set, and what changing it
// does.
type attribute struct {
	kind   kind
	many   bool       // a list
	set    bool       // a list whose order and repetitions do not count
	fields attributes // of a block
	// fallback is the published default. Lists and blocks have defaults too: the bridge to Terraform fills them in, which
	// Terraform itself does not.
	fallback any
	effect   effect
	required bool
	computed bool // keeps what the server chose while the program does not state it
	output   bool // never an input
	secret   bool
	exact    bool // zero is something else than nothing set
	// with is the path of another property that must be set too, whatever its value.
	with string
	// unsupported properties exist in the published SDK; stating one here is an error rather than being ignored.
	unsupported bool
	validate    func(any) string
}

// attributes are the properties of a resource or block by their published names.
type attributes map[string]attribute

// names returns the properties in order, so that messages and requests do not depend on the map's.
func (as attributes) names() []string { return slices.Sorted(maps.Keys(as)) }

// at returns the attribute of a path such as disks[0].size, and what a change of it does.
func (as attributes) at(path string) (attribute, effect) {
	result := inPlace

	var found attribute

	for name := range strings.SplitSeq(path, ".") {
		name, _, _ = strings.Cut(name, "[")
		found = as[name]
		as = found.fields

		if found.effect != inherited && result != replace && result != refused {
			result = found.effect
		}
	}

	return found, result
}

// defaults returns what a block of these attributes looks like when nothing in it is set.
func (as attributes) defaults() object {
	out := object{}

	for name, a := range as {
		if a.fallback != nil {
			out[name] = a.fallback
		}
	}

	return out
}

// zero is the value Terraform's kind of state gives a primitive that was never set.
func (a attribute) zero() any {
	switch {
	case a.many || a.kind == block:
		return nil
	case a.kind == boolean:
		return false
	case a.kind == integer, a.kind == number:
		return 0.0
	default:
		return ""
	}
}

func splitPath(path string) func(func(string) bool) { return strings.SplitSeq(path, ".") }
