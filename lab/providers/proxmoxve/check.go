package proxmoxve

import (
	"context"
	"fmt"

	p "github.com/pulumi/pulumi-go-provider"
)

// checker collects the problems in a resource's inputs.
type checker struct {
	failures []p.CheckFailure
}

func (c *checker) fail(path, format string, args ...any) {
	c.failures = append(c.failures, p.CheckFailure{Property: path, Reason: fmt.Sprintf(format, args...)})
}

// unknownProperty refuses a property that is in no table. The tables have only what the program uses.
func (c *checker) unknownProperty(path string) {
	c.fail(
		path, "the lab's stand-in does not know %s: check its spelling, or run against the published provider if that has it",
		path,
	)
}

// check validates inputs and fills in defaults, also in lists and blocks.
func (r *resourceType) check(_ context.Context, req p.CheckRequest) (p.CheckResponse, error) {
	c := &checker{}
	in := c.fields("", r.attributes, fromMap(req.Inputs))

	if r.uniqueName && in["name"] == nil {
		c.fail("name", "the lab's stand-in chooses no name: state `name`, or run against the published provider")
	}

	if r.validate != nil {
		r.validate(c, in)
	}

	return p.CheckResponse{Inputs: r.attributes.toMap(in, secrets(req.Inputs)), Failures: c.failures}, nil
}

// fields checks a block for unknown properties and missing required ones, and fills in defaults.
func (c *checker) fields(path string, as attributes, in object) object {
	out := object{}

	for name := range in {
		if _, known := as[name]; !known {
			c.unknownProperty(join(path, name))
		}
	}

	for _, name := range as.names() {
		a, at := as[name], join(path, name)

		v, ok := in[name]
		if !ok || v == nil {
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

// value checks a value, also in lists and blocks. Unknown values are accepted.
func (c *checker) value(path string, a attribute, v any) any {
	switch v := v.(type) {
	case unknown:
	case []any:
		out := make([]any, 0, len(v))
		for i, e := range v {
			out = append(out, c.value(fmt.Sprintf("%s[%d]", path, i), a.element(), e))
		}

		return out
	case object:
		return c.fields(path, a.fields, v)
	default:
		if a.validate == nil {
			break
		}

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
