package proxmoxve

import (
	"maps"
	"slices"
)

// kind is the type of a property's value, or of its elements when it is a list.
type kind int

const (
	text kind = iota
	boolean
	integer
	texts // a list of strings, as the element of a list
	block // a nested object
)

// attribute is one property of a resource: its shape, what it is taken as when it is not set, and what changing it
// does.
type attribute struct {
	kind   kind
	key    string // Proxmox' name of it: in the configuration (with an index in lists), or in a property string
	option string // Proxmox has it as this option of a property string of its own
	bare   string // the option of a block's property string that may have no name
	absent string // what Proxmox means where the key is missing
	many   bool   // a list
	set    bool   // a list whose order and repetitions do not count
	joint  string // between the texts of a list; none = a semicolon
	// escaped texts are percent-encoded.
	escaped bool
	fields  attributes // of a block
	most    int        // how many elements a list of blocks has at most
	place   string     // the property with an element's key; none = the index counts
	// missing is an element whose index has no key, where an element after it has.
	missing object
	// models are a card's; Proxmox writes model=virtio,macaddr=<address> as virtio=<address>.
	models []string
	// fallback is the published default. Lists and blocks have defaults too: the bridge to Terraform fills them in, which
	// Terraform itself does not.
	fallback any
	effect   Effect
	required bool
	computed bool // keeps what the server chose while the program does not state it
	output   bool // never an input
	secret   bool
	exact    bool // zero is something else than nothing set
	unread   bool // a refresh does not read it as the table says, or not at all
	sticky   bool // what is not set any more stays
	trueOnly bool // false is not sent
	validate func(any) string
}

// attributes are the properties of a resource or block by their published names.
type attributes map[string]attribute

// names returns the properties in order, so that messages and requests do not depend on the map's.
func (as attributes) names() []string { return slices.Sorted(maps.Keys(as)) }

// element is an attribute without being a list.
func (a attribute) element() attribute {
	a.many = false

	return a
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

// inputsOf are the inputs that a program would have for a state, as an import finds them: without defaults and what
// only the server can know.
func (as attributes) inputsOf(state object) object {
	out := object{}

	for name, a := range as {
		value := state[name]
		if value == nil || a.output || !a.required && a.same(value, a.fallback) {
			continue
		}

		switch {
		case a.kind == block && a.many:
			var all []any

			for _, element := range children(state, name) {
				all = append(all, a.fields.inputsOf(element))
			}

			out[name] = all
		case a.kind == block:
			out[name] = a.fields.inputsOf(child(state, name))
		default:
			out[name] = value
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
	case a.kind == integer:
		return 0.0
	default:
		return ""
	}
}
