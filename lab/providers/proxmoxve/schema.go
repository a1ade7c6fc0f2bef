package proxmoxve

import (
	"maps"
	"slices"
)

// kind is the type of a property's value, or of its elements if it is a list.
type kind int

const (
	text kind = iota
	boolean
	integer
	texts // a list of strings, as an element of a list
	block // a nested object
)

// attribute is a property of a resource: its type, its default, its form in Proxmox and the effect of a change.
type attribute struct {
	kind      kind
	key       string // Proxmox' name of it: in the configuration (with an index in lists), or in a property string
	option    string // name of the only option in Proxmox' property string
	bare      string // the option of a block's property string whose name may be omitted
	absent    string // Proxmox' default, if the key is missing
	many      bool   // a list
	set       bool   // a list whose order and repetitions do not matter
	separator string // of a list of strings; empty = semicolon
	// escaped strings are percent-encoded.
	escaped     bool
	fields      attributes // of a block
	maxItems    int        // of a list of blocks
	keyProperty string     // the property with an element's key; empty = the key has the index
	// placeholder is the element for an index without a key, if a later index has one.
	placeholder object
	// models are those of a network device: Proxmox writes model=virtio,macaddr=<address> as virtio=<address>.
	models []string
	// fallback is the published default. Unlike Terraform itself, the bridge to Terraform fills in defaults of lists
	// and blocks, too.
	fallback any
	effect   Effect
	required bool
	computed bool // the server chooses the value if the program does not set it
	output   bool // never an input
	secret   bool
	exact    bool // zero differs from unset
	noRead   bool // not read by readTable
	sticky   bool // removing the value does not delete the keys
	trueOnly bool // false is not sent
	alone    bool // an update sends or deletes it only if it changes, not with its block: only root may
	validate func(any) string
}

// attributes are the properties of a resource or block by their published names.
type attributes map[string]attribute

// names returns the sorted names, so that messages and requests have a stable order.
func (as attributes) names() []string { return slices.Sorted(maps.Keys(as)) }

// element returns the attribute of a list's elements.
func (a attribute) element() attribute {
	a.many = false

	return a
}

// defaults returns a block with only default values.
func (as attributes) defaults() object {
	out := object{}

	for name, a := range as {
		if a.fallback != nil {
			out[name] = a.fallback
		}
	}

	return out
}

// inputsOf returns the inputs of an imported state: without defaults, and without choices of the server.
func (as attributes) inputsOf(state object) object {
	out := object{}

	for name, a := range as {
		value := state[name]
		if value == nil || a.output || !a.required && a.equal(value, a.fallback) {
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

// zero returns the value of an unset primitive in Terraform's kind of state.
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
