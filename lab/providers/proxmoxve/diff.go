package proxmoxve

import (
	"context"
	"fmt"
	"maps"
	"slices"

	p "github.com/pulumi/pulumi-go-provider"
)

// plan returns what the resource is to become: the inputs, with the state where the program leaves the choice to the
// server or ignores changes.
func (r *resourceType) plan(inputs, state object, ignore []string) object {
	out := r.attributes.planned("", inputs, state, ignore)
	r.attributes.keepSets(out, state)

	if r.suppress != nil {
		r.suppress(out, state)
	}

	return out
}

// planned leaves ignored paths as they are in the state. Paths are compared as written: a wildcard ignores nothing, as
// published.
func (as attributes) planned(path string, in, state object, ignore []string) object {
	out := object{}

	for name, a := range as {
		at := join(path, name)
		if slices.Contains(ignore, at) {
			out[name] = state[name]

			continue
		}

		out[name] = a.planned(at, in[name], state[name], ignore)
	}

	return out
}

// planned is the value after the update: the state's for outputs and for choices of the server, otherwise the
// program's.
func (a attribute) planned(path string, in, state any, ignore []string) any {
	switch {
	case a.output, in == nil && a.computed:
		return state
	case in == nil && a.kind != block && !a.many:
		return a.fallback
	case in == nil || in == (unknown{}):
		return in
	case a.many && a.kind == block:
		var out []any

		before, _ := state.([]any)

		for i, e := range in.([]any) {
			at := fmt.Sprintf("%s[%d]", path, i)
			if i < len(before) && slices.Contains(ignore, at) {
				out = append(out, before[i])

				continue
			}

			var old any
			if i < len(before) {
				old = before[i]
			}

			out = append(out, a.element().planned(at, e, old, ignore))
		}

		return out
	case a.kind == block:
		fields, ok := in.(object)
		if !ok {
			return in
		}

		old, _ := state.(object)

		return a.fields.planned(path, fields, old, ignore)
	default:
		return in
	}
}

// keepSets takes back differences in the order of sets.
func (as attributes) keepSets(plan, state object) {
	for name, a := range as {
		if a.set && plan[name] != (unknown{}) && slices.Equal(members(plan, name), members(state, name)) {
			plan[name] = state[name]
		}
	}
}

// members are the elements of a set as texts, each once and in order. What is not set in an element is not in its
// text.
func members(o object, name string) []string {
	var out []string

	for _, element := range list(o, name) {
		fields, ok := element.(object)
		if ok {
			fields = maps.Clone(fields)
			maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil })
			element = fields
		}

		out = append(out, fmt.Sprintf("%#v", element))
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// difference is a path at which the plan differs from the state, and what the change does.
type difference struct {
	kind   p.DiffKind
	effect Effect
}

// differences are those of a resource by their paths.
type differences map[string]difference

// differences lists the paths at which a plan differs from the state.
func (r *resourceType) differences(plan, state object) differences {
	found := differences{}
	r.attributes.changes("", InPlace, plan, state, found)

	if r.moreChanges != nil {
		r.moreChanges(plan, state, found)
	}

	return found
}

func (as attributes) changes(path string, around Effect, plan, state object, found differences) {
	for name, a := range as {
		if !a.output {
			a.changes(join(path, name), a.within(around), plan[name], state[name], found)
		}
	}
}

// within is what a change does in a block: replacement and refusal of the block hold for everything in it.
func (a attribute) within(around Effect) Effect {
	if a.effect == inherited || around == Replace || around == Refused {
		return around
	}

	return a.effect
}

// changes goes down to the values that differ; a block that comes or goes is one difference. Lists of blocks are
// compared by position, like Terraform: an element put in front shifts the rest. An unset primitive or list equals its
// zero.
func (a attribute) changes(path string, e Effect, plan, state any, found differences) {
	_, planUnknown := plan.(unknown)
	_, stateUnknown := state.(unknown)
	x, planned := plan.(object)
	y, existing := state.(object)

	switch {
	case planUnknown || stateUnknown:
		if planUnknown && stateUnknown {
			return
		}
	case a.many:
		a.elementChanges(path, e, plan, state, found)

		return
	case a.kind == block && planned && existing:
		a.fields.changes(path, e, x, y, found)

		return
	case a.kind == block && planned != existing:
		// By what it brings or takes: initialization with a user account replaces, without one it does not.
		for name, field := range a.fields {
			if field.effect == Replace && !field.same(x[name], y[name]) {
				e = Replace
			}
		}
	case a.kind == block, a.exact && plan == state, !a.exact && a.orZero(plan) == a.orZero(state):
		return
	}

	found[path] = difference{kindOf(plan, state), e}
}

func kindOf(plan, state any) p.DiffKind {
	switch {
	case state == nil:
		return p.Add
	case plan == nil:
		return p.Delete
	default:
		return p.Update
	}
}

// elementChanges compares lists; one of primitives that differs is one difference.
func (a attribute) elementChanges(path string, e Effect, plan, state any, found differences) {
	planned, _ := plan.([]any)
	before, _ := state.([]any)
	elements := differences{}

	at := func(list []any, i int) any {
		if i < len(list) {
			return list[i]
		}

		return nil
	}

	for i := range max(len(planned), len(before)) {
		a.element().changes(fmt.Sprintf("%s[%d]", path, i), e, at(planned, i), at(before, i), elements)
	}

	switch {
	case a.kind == block:
		maps.Copy(found, elements)
	case len(elements) > 0 || len(planned) != len(before):
		found[path] = difference{kindOf(plan, state), e}
	}
}

// same compares two values of an attribute.
func (a attribute) same(x, y any) bool {
	found := differences{}
	a.changes("", InPlace, x, y, found)

	return len(found) == 0
}

// orZero makes unset and zero the same.
func (a attribute) orZero(v any) any {
	if v == nil {
		return a.zero()
	}

	return v
}

// diff tells every changed path, so that a preview can show it, with what the table says of it.
func (r *resourceType) diff(_ context.Context, req p.DiffRequest) (p.DiffResponse, error) {
	state := fromMap(req.State)
	plan := r.plan(fromMap(req.Inputs), state, req.IgnoreChanges)
	out := p.DiffResponse{DetailedDiff: map[string]p.PropertyDiff{}}
	replaced := false

	for path, found := range r.differences(plan, state) {
		if found.effect == Replace && (r.keeps == nil || !r.keeps(path, plan, state)) {
			found.kind += "&replace"
			replaced = true
		}

		out.DetailedDiff[path] = p.PropertyDiff{Kind: found.kind}
	}

	out.HasChanges = len(out.DetailedDiff) > 0
	out.DeleteBeforeReplace = replaced && r.named

	return out, nil
}
