package proxmoxve

import (
	"context"
	"fmt"
	"slices"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// defaultsKey is where the published bridge notes which inputs it filled in itself.
const defaultsKey = "__defaults"

// checker collects the problems of one resource's inputs.
type checker struct {
	failures []p.CheckFailure
}

func (c *checker) fail(path, format string, args ...any) {
	c.failures = append(c.failures, p.CheckFailure{Property: path, Reason: fmt.Sprintf(format, args...)})
}

// unknownProperty refuses what is in no table. The tables have what the program states, which is less than is
// published.
func (c *checker) unknownProperty(path string) {
	c.fail(
		path, "the lab's stand-in does not know %s: check its spelling, or run against the published provider if that has it",
		path,
	)
}

// check validates inputs and fills in defaults, in lists and blocks too.
func (r *resourceType) check(_ context.Context, req p.CheckRequest) (p.CheckResponse, error) {
	in := fromMap(req.Inputs)
	c := &checker{}

	delete(in, defaultsKey)

	out := c.fields("", r.attributes, in)
	filled := missing(in, out)

	if _, stated := in["name"]; !stated && r.autoName {
		name, err := autoName(req)
		if err != nil {
			return p.CheckResponse{}, err
		}

		out["name"] = name

		filled = append(filled, "name")
	}

	if r.checkMore != nil {
		r.checkMore(c, out)
	}

	slices.Sort(filled)

	inputs := r.attributes.toMap(out, secrets(req.Inputs))

	return p.CheckResponse{Inputs: inputs.Set(defaultsKey, nameList(filled)), Failures: c.failures}, nil
}

func nameList(names []string) property.Value {
	out := make([]property.Value, 0, len(names))
	for _, name := range names {
		out = append(out, property.New(name))
	}

	return property.New(out)
}

// autoName keeps the name chosen before, like Pulumi's automatic names elsewhere.
func autoName(req p.CheckRequest) (string, error) {
	if old := str(fromMap(req.State), "name"); old != "" && autoNamed(req.State) {
		return old, nil
	}

	name, err := resource.NewUniqueName(req.RandomSeed, req.Urn.Name()+"-", 7, 255, nil)
	if err != nil {
		return "", fmt.Errorf("unable to choose a name for %s (state `name`): %w", req.Urn.Name(), err)
	}

	return name, nil
}

// autoNamed tells whether the name was chosen here; the note of the defaults is the only trace of that.
func autoNamed(inputs property.Map) bool {
	return slices.Contains(words(fromMap(inputs), defaultsKey), "name")
}

// missing names the inputs that were filled in.
func missing(in, out object) []string {
	var names []string

	for name := range out {
		if _, stated := in[name]; !stated {
			names = append(names, name)
		}
	}

	return names
}

// fields checks a block: nothing unknown, nothing required missing, defaults for the rest.
func (c *checker) fields(path string, as attributes, in object) object {
	out := object{}

	for name := range in {
		if _, known := as[name]; !known {
			c.unknownProperty(join(path, name))
		}
	}

	for _, name := range as.names() {
		a, at := as[name], join(path, name)

		v, stated := in[name]
		if !stated || v == nil {
			if a.required {
				c.fail(at, "Missing required argument: %q is required, but no definition was found", at)
			}

			if a.fallback != nil {
				out[name] = a.fallback
			}

			continue
		}

		if a.output {
			c.fail(at, "%s is an output and cannot be set: leave it out", at)
		} else {
			out[name] = c.value(at, a, v)
		}
	}

	return out
}

// value checks lists and blocks all the way down. What is not known before another resource exists is taken as right.
func (c *checker) value(path string, a attribute, v any) any {
	if v == (unknown{}) {
		return v
	}

	if a.many {
		elements, ok := v.([]any)
		if !ok {
			c.fail(path, "expected a list, got %T", v)

			return nil
		}

		out := make([]any, 0, len(elements))

		for i, e := range elements {
			out = append(out, c.value(fmt.Sprintf("%s[%d]", path, i), a.element(), e))
		}

		return out
	}

	if a.kind == block {
		fields, ok := v.(object)
		if !ok {
			c.fail(path, "expected an object, got %T", v)

			return nil
		}

		return c.fields(path, a.fields, fields)
	}

	return c.primitive(path, a, v)
}

// primitive checks the type of a single value and then its range, so that each mistake is reported once.
func (c *checker) primitive(path string, a attribute, v any) any {
	ok := false

	switch a.kind {
	case boolean:
		_, ok = v.(bool)
	case integer:
		n, isNumber := v.(float64)
		ok = isNumber && n == float64(int64(n))
	case text:
		_, ok = v.(string)
	case texts, block:
	}

	if !ok {
		c.fail(path, "expected a %s, got %v", a.kind, v)

		return v
	}

	if a.validate != nil {
		if problem := a.validate(v); problem != "" {
			c.fail(path, "%s", problem)
		}
	}

	return v
}

func join(path, name string) string {
	if path == "" {
		return name
	}

	return path + "." + name
}

// String names the kind in messages.
func (k kind) String() string {
	return [...]string{"string", "boolean", "whole number", "list", "object"}[k]
}
