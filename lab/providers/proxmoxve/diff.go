package proxmoxve

import (
	"context"
	"fmt"
	"maps"
	"slices"

	p "github.com/pulumi/pulumi-go-provider"
)

// plan returns the resource after the update: the inputs, with the state's values where changes are ignored or the
// server chooses.
func (r *resourceType) plan(inputs, state object, ignore []string) object {
	out := r.attributes.plan("", inputs, state, ignore)
	r.attributes.keepSetOrder(out, state)

	if r.suppressDiff != nil {
		r.suppressDiff(out, state)
	}

	return out
}

// plan keeps the state's values of ignored paths. Paths are compared literally: a wildcard ignores nothing, as
// published.
func (as attributes) plan(path string, in, state object, ignore []string) object {
	out := object{}

	for name, a := range as {
		at := join(path, name)
		if slices.Contains(ignore, at) {
			out[name] = state[name]

			continue
		}

		out[name] = a.plan(at, in[name], state[name], ignore)
	}

	return out
}

// plan returns the value after the update: the state's for outputs and for choices of the server, otherwise the
// program's.
func (a attribute) plan(path string, in, state any, ignore []string) any {
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

			out = append(out, a.element().plan(at, e, old, ignore))
		}

		return out
	case a.kind == block:
		fields, ok := in.(object)
		if !ok {
			return in
		}

		old, _ := state.(object)

		return a.fields.plan(path, fields, old, ignore)
	default:
		return in
	}
}

// keepSetOrder keeps the state's order of sets whose elements are equal.
func (as attributes) keepSetOrder(plan, state object) {
	for name, a := range as {
		if a.set && plan[name] != (unknown{}) && slices.Equal(setMembers(plan, name), setMembers(state, name)) {
			plan[name] = state[name]
		}
	}
}

// setMembers returns the elements of a set as sorted, unique strings, without unset fields.
func setMembers(o object, name string) []string {
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

// difference is a path at which plan and state differ, with the effect of the change.
type difference struct {
	kind   p.DiffKind
	effect Effect
}

// differences are a resource's differences by path.
type differences map[string]difference

// differences returns the paths at which a plan differs from the state.
func (r *resourceType) differences(plan, state object) differences {
	found := differences{}
	r.attributes.collectChanges("", InPlace, plan, state, found)

	if r.outputChanges != nil {
		r.outputChanges(plan, state, found)
	}

	return found
}

func (as attributes) collectChanges(path string, outer Effect, plan, state object, found differences) {
	for name, a := range as {
		if !a.output {
			a.collectChanges(join(path, name), a.effectIn(outer), plan[name], state[name], found)
		}
	}
}

// effectIn returns the effect of a change within a block: if the block is replaced or refuses changes, so does
// everything in it.
func (a attribute) effectIn(outer Effect) Effect {
	if a.effect == inherited || outer == Replace || outer == Refused {
		return outer
	}

	return a.effect
}

// collectChanges descends to the values that differ; a block that is added or removed is one difference. Like
// Terraform, it compares lists of blocks by position: an element inserted at the front shifts the others. An unset
// primitive or list equals its zero value.
func (a attribute) collectChanges(path string, e Effect, plan, state any, found differences) {
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
		a.collectElementChanges(path, e, plan, state, found)

		return
	case a.kind == block && planned && existing:
		a.fields.collectChanges(path, e, x, y, found)

		return
	case a.kind == block && planned != existing:
		// A block's own fields decide: initialization with a user account replaces, without one it does not.
		for name, field := range a.fields {
			if field.effect == Replace && !field.equal(x[name], y[name]) {
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

// collectElementChanges compares lists; a list of primitives that differs is one difference.
func (a attribute) collectElementChanges(path string, e Effect, plan, state any, found differences) {
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
		a.element().collectChanges(fmt.Sprintf("%s[%d]", path, i), e, at(planned, i), at(before, i), elements)
	}

	switch {
	case a.kind == block:
		maps.Copy(found, elements)
	case len(elements) > 0 || len(planned) != len(before):
		found[path] = difference{kindOf(plan, state), e}
	}
}

// equal reports whether two values of an attribute are the same.
func (a attribute) equal(x, y any) bool {
	found := differences{}
	a.collectChanges("", InPlace, x, y, found)

	return len(found) == 0
}

// orZero returns the zero value for an unset one.
func (a attribute) orZero(v any) any {
	if v == nil {
		return a.zero()
	}

	return v
}

// diff returns every changed path for the preview, with the table's effect.
func (r *resourceType) diff(_ context.Context, req p.DiffRequest) (p.DiffResponse, error) {
	state := fromMap(req.State)
	plan := r.plan(fromMap(req.Inputs), state, req.IgnoreChanges)
	out := p.DiffResponse{DetailedDiff: map[string]p.PropertyDiff{}}
	replaced := false

	for path, found := range r.differences(plan, state) {
		if found.effect == Replace && (r.updatesInPlace == nil || !r.updatesInPlace(path, plan, state)) {
			found.kind += "&replace"
			replaced = true
		}

		out.DetailedDiff[path] = p.PropertyDiff{Kind: found.kind}
	}

	out.HasChanges = len(out.DetailedDiff) > 0
	out.DeleteBeforeReplace = replaced && r.uniqueName

	return out, nil
}
