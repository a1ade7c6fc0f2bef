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
		element := a
		element.many = false

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

			out = append(out, element.planned(at, e, old, ignore))
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

// changes lists the paths at which the plan differs from the state.
func (as attributes) changes(path string, plan, state object, out map[string]p.DiffKind) {
	for name, a := range as {
		if !a.output {
			a.changes(join(path, name), plan[name], state[name], out)
		}
	}
}

// changes goes down to the values that differ; a block that comes or goes is one difference.
func (a attribute) changes(path string, plan, state any, out map[string]p.DiffKind) {
	if a.same(plan, state) {
		return
	}

	planned, _ := plan.(object)
	before, _ := state.(object)

	switch {
	case a.many && a.kind == block:
		a.elementChanges(path, plan, state, out)
	case a.kind == block && planned != nil && before != nil:
		a.fields.changes(path, planned, before, out)
	case state == nil:
		out[path] = p.Add
	case plan == nil:
		out[path] = p.Delete
	default:
		out[path] = p.Update
	}
}

// elementChanges compares lists by position, like Terraform: an element put in front shifts the rest.
func (a attribute) elementChanges(path string, plan, state any, out map[string]p.DiffKind) {
	element := a
	element.many = false

	planned, _ := plan.([]any)
	before, _ := state.([]any)

	for i := range max(len(planned), len(before)) {
		var x, y any
		if i < len(planned) {
			x = planned[i]
		}

		if i < len(before) {
			y = before[i]
		}

		element.changes(fmt.Sprintf("%s[%d]", path, i), x, y, out)
	}
}

// replacing tells whether a change at path needs a new resource: by the table, where a block that comes or goes counts
// by what is in it.
func (r *resourceType) replacing(path string, plan, state object) bool {
	a, effect := r.attributes.at(path)
	if r.keeps != nil && r.keeps(path, plan, state) {
		return false
	}

	if effect == replace {
		return true
	}

	if a.kind != block || a.many {
		return false
	}

	return a.replacesWithin(lookup(plan, path), lookup(state, path))
}

// replacesWithin looks at what a block brings or takes: initialization with a type replaces, without one it does not.
func (a attribute) replacesWithin(plan, state any) bool {
	planned, _ := plan.(object)
	before, _ := state.(object)

	for name, field := range a.fields {
		if field.effect == replace && !field.same(planned[name], before[name]) {
			return true
		}
	}

	return false
}

// diff tells every changed path, so that a preview can show it, with what the table says of it.
func (r *resourceType) diff(_ context.Context, req p.DiffRequest) (p.DiffResponse, error) {
	state := fromMap(req.State)
	plan := r.plan(fromMap(req.Inputs), state, req.IgnoreChanges)

	found := map[string]p.DiffKind{}
	r.attributes.changes("", plan, state, found)

	if r.moreChanges != nil {
		r.moreChanges(plan, state, found)
	}

	out := p.DiffResponse{DetailedDiff: map[string]p.PropertyDiff{}}
	replaced := false

	for path, kind := range found {
		if r.replacing(path, plan, state) {
			kind += "&replace"
			replaced = true
		}

		out.DetailedDiff[path] = p.PropertyDiff{Kind: kind}
	}

	out.HasChanges = len(found) > 0
	// Two resources of one stated name cannot exist together; an automatic name is free to change.
	out.DeleteBeforeReplace = replaced && r.autoName && !autoNamed(req.Inputs)

	return out, nil
}

// lookup finds the block of a path without list indexes.
func lookup(o object, path string) any {
	var v any = o

	for name := range splitPath(path) {
		c, _ := v.(object)
		v = c[name]
	}

	return v
}
