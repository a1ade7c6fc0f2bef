package proxmoxve

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// object has the values of a block: bool, float64, string, []any, object, unknown or nil.
type object = map[string]any

// unknown is a value that is not known before another resource exists.
type unknown struct{}

// fromMap converts properties to plain values. It drops the mark of secrets, whose paths secrets returns.
func fromMap(m property.Map) object {
	return resource.ToResourcePropertyMap(m).MapRepl(nil, plain)
}

// plain converts secrets, unknown values and outputs.
func plain(v resource.PropertyValue) (any, bool) {
	switch {
	case v.IsSecret():
		return v.SecretValue().Element.MapRepl(nil, plain), true
	case v.IsOutput() && v.OutputValue().Known:
		return v.OutputValue().Element.MapRepl(nil, plain), true
	case v.IsOutput(), v.IsComputed():
		return unknown{}, true
	}

	return nil, false
}

// secrets returns the paths of secret values.
func secrets(m property.Map) map[string]bool {
	found := map[string]bool{}
	for name, v := range m.All {
		collectSecrets(name, v, found)
	}

	return found
}

func collectSecrets(path string, v property.Value, found map[string]bool) {
	if v.Secret() {
		found[path] = true
	}

	switch {
	case v.IsMap():
		for name, child := range v.AsMap().All {
			collectSecrets(path+"."+name, child, found)
		}
	case v.IsArray():
		for i, child := range v.AsArray().All {
			collectSecrets(fmt.Sprintf("%s[%d]", path, i), child, found)
		}
	}
}

// toMap converts values to properties. Secrets are those of the table and those of the inputs.
func (as attributes) toMap(values object, secret map[string]bool) property.Map {
	return property.NewMap(as.toValues("", values, secret))
}

func (as attributes) toValues(path string, values object, secret map[string]bool) map[string]property.Value {
	out := map[string]property.Value{}

	for name, v := range values {
		if v != nil {
			out[name] = as[name].toValue(join(path, name), v, secret)
		}
	}

	return out
}

func (a attribute) toValue(path string, v any, secret map[string]bool) property.Value {
	out := property.New(property.Null)

	switch v := v.(type) {
	case unknown:
		out = property.New(property.Computed)
	case bool:
		out = property.New(v)
	case float64:
		out = property.New(v)
	case string:
		out = property.New(v)
	case []any:
		list := make([]property.Value, 0, len(v))
		for i, element := range v {
			list = append(list, a.toValue(fmt.Sprintf("%s[%d]", path, i), element, secret))
		}

		out = property.New(list)
	case object:
		out = property.New(a.fields.toValues(path, v, secret))
	}

	return out.WithSecret(a.secret || secret[path])
}

func str(o object, name string) string {
	s, _ := o[name].(string)

	return s
}

func num(o object, name string) int {
	n, _ := o[name].(float64)

	return int(n)
}

func flag(o object, name string) bool {
	b, _ := o[name].(bool)

	return b
}

func child(o object, name string) object {
	c, _ := o[name].(object)

	return c
}

func list(o object, name string) []any {
	l, _ := o[name].([]any)

	return l
}

// children returns the blocks of a list; a missing element is an empty block.
func children(o object, name string) []object { return blocks(o[name]) }

func blocks(list any) []object {
	var out []object

	elements, _ := list.([]any)
	for _, element := range elements {
		c, _ := element.(object)
		out = append(out, c)
	}

	return out
}

// stringList returns the strings of a list.
func stringList(o object, name string) []string { return stringsOf(list(o, name)) }

func stringsOf(list []any) []string {
	var out []string

	for _, element := range list {
		if s, ok := element.(string); ok {
			out = append(out, s)
		}
	}

	return out
}

// toList converts a list of strings for an object.
func toList(values []string) []any {
	out := make([]any, 0, len(values))
	for _, v := range values {
		out = append(out, v)
	}

	return out
}
