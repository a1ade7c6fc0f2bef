package proxmoxve

import (
	"maps"
	"slices"
	"strconv"
	"strings"
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

// effect is what a change of a property does to the machine.
type effect int

const (
	inherited effect = iota // as the block around it; at the top: in place
	inPlace
	reboot
	replace
	refused
)

// attribute is one property of a resource: its shape, what it is taken as when it is not set, and what changing it
// does.
type attribute struct {
	kind   kind
	key    string     // Proxmox' name of it, where it is one value there: of the configuration, or in a block's string
	absent string     // what Proxmox means where the key is missing
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
	validate func(any) string
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

// stated are the inputs that a program would have for a state, as an import finds them: without defaults and what only
// the server can know.
func (as attributes) stated(state object) object {
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
				all = append(all, a.fields.stated(element))
			}

			out[name] = all
		case a.kind == block:
			out[name] = a.fields.stated(child(state, name))
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

// encoded is one value as Proxmox has it.
func (a attribute) encoded(value any) string {
	switch v := value.(type) {
	case bool:
		return bit(v)
	case float64:
		return strconv.Itoa(int(v))
	case string:
		return v
	}

	return a.absent
}

// encoded are the stated values of a block in Proxmox' names: numbers above 0, texts that are not empty and every
// boolean.
func (as attributes) encoded(values object, names ...string) options {
	var o options

	for _, name := range names {
		switch a := as[name]; a.kind {
		case boolean:
			o.flag(a.key, flag(values, name))
		case integer:
			o.positive(a.key, num(values, name))
		case text, texts, block:
			o.some(a.key, str(values, name))
		}
	}

	return o
}

// decoded is the way back, of everything that has a name in Proxmox.
func (as attributes) decoded(found map[string]string) object {
	out := object{}

	for name, a := range as {
		if a.key != "" {
			out[name] = a.decoded(found)
		}
	}

	return out
}

func (a attribute) decoded(found map[string]string) any {
	switch value := strings.TrimSpace(orElse(found, a.key, a.absent)); a.kind {
	case boolean:
		return isTrue(value)
	case integer:
		return whole(value)
	case text, texts, block:
		return value
	}

	return nil
}

// fieldsOf is the table of one of a VM's blocks.
func fieldsOf(name string) attributes { return virtualMachine()[name].fields }

func splitPath(path string) func(func(string) bool) { return strings.SplitSeq(path, ".") }
