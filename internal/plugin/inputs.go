package plugin

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/internal/problem"
)

// checkInputs returns a component's arguments as they can be read into its type, or everything that is wrong with their
// form, each with its path. What they say, the component judges.
func checkInputs(inputs resource.PropertyMap, arguments reflect.Type) (resource.PropertyMap, error) {
	var c check

	checked := c.object("", inputs, arguments)

	if len(c.List) > 0 {
		return nil, c.List
	}

	return checked, nil
}

type check struct{ problem.List }

// keptSecret are the plain values that a component keeps out of the plain state where its own secret says so.
var keptSecret = map[string]bool{ //nolint:gochecknoglobals // a table
	"patches": true, "labels": true, "taints": true,
}

func (c *check) object(path string, object resource.PropertyMap, structure reflect.Type) resource.PropertyMap {
	fields, names, checked := map[string]reflect.Type{}, []string{}, resource.PropertyMap{}
	for _, f := range fieldsOf(structure) {
		fields[f.name] = f.kind
		names = append(names, f.name)
	}

	for _, key := range slices.Sorted(maps.Keys(object)) {
		name, value := string(key), object[key]

		kind, known := fields[name]
		if !known {
			if !resource.IsInternalPropertyKey(key) {
				c.Add(path+name, nil, "there is no such input; choose one of %s", strings.Join(names, ", "))
			}

			continue
		}

		if _, keeps := fields["secret"]; keeps && keptSecret[name] && value.ContainsSecrets() && !isInput(kind) {
			value, checked["secret"] = revealed(value), resource.NewProperty(true)
		}

		if _, set := checked[key]; !set {
			checked[key] = c.value(path+name, value, kind)
		}
	}

	return checked
}

// revealed is a value without its secrets' marks.
func revealed(value resource.PropertyValue) resource.PropertyValue {
	switch {
	case value.IsSecret():
		return revealed(value.SecretValue().Element)
	case value.IsOutput():
		output := value.OutputValue()
		output.Secret, output.Element = false, revealed(output.Element)

		return resource.NewProperty(output)
	case value.IsArray():
		var list []resource.PropertyValue
		for _, element := range value.ArrayValue() {
			list = append(list, revealed(element))
		}

		return resource.NewProperty(list)
	case value.IsObject():
		object := resource.PropertyMap{}
		for key, element := range value.ObjectValue() {
			object[key] = revealed(element)
		}

		return resource.NewProperty(object)
	}

	return value
}

// value checks a value that becomes one of a type. An input may be an output, whose value the SDK reads.
func (c *check) value(path string, value resource.PropertyValue, kind reflect.Type) resource.PropertyValue {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}

	if value.IsNull() || isInput(kind) {
		return value
	}

	if value.IsOutput() {
		if o := value.OutputValue(); o.Known && !o.Secret && len(o.Dependencies) == 0 {
			return c.value(path, o.Element, kind)
		}
	}

	switch {
	case value.IsSecret() || value.IsOutput() && value.OutputValue().Secret:
		c.Add(path, nil, "is a secret, which is not kept as one here; use it in plain text")
	case value.IsComputed() || value.IsOutput() && !value.OutputValue().Known:
		c.Add(path, nil, "is not known before something else is made; use a plain value: what is registered follows from it")
	case value.IsOutput(): // of another resource, but known: only the order of the run could follow from it
		c.Add(path, nil, "is an output of another resource; use a plain value: what is registered follows from it")
	case kind.Kind() == reflect.Struct && value.IsObject():
		return resource.NewProperty(c.object(path+".", value.ObjectValue(), kind))
	case kind.Kind() == reflect.Slice && value.IsArray():
		var list []resource.PropertyValue
		for i, element := range value.ArrayValue() {
			list = append(list, c.value(fmt.Sprintf("%s[%d]", path, i), element, kind.Elem()))
		}

		return resource.NewProperty(list)
	case kind.Kind() == reflect.Map && value.IsObject():
		object := resource.PropertyMap{}
		for key, element := range value.ObjectValue() {
			object[key] = c.value(path+"."+string(key), element, kind.Elem())
		}

		return resource.NewProperty(object)
	default:
		c.leaf(path, value, kind)
	}

	return value
}

// leaf checks a text, a number or a boolean.
func (c *check) leaf(path string, value resource.PropertyValue, kind reflect.Type) {
	wanted, fits := "", false

	switch kind.Kind() { //nolint:exhaustive // the types that arguments have
	case reflect.String:
		wanted, fits = "a text", value.IsString()
	case reflect.Bool:
		wanted, fits = "true or false", value.IsBool()
	case reflect.Int:
		wanted, fits = "a whole number", value.IsNumber() && value.NumberValue() == math.Trunc(value.NumberValue())
	case reflect.Float64:
		wanted, fits = "a number", value.IsNumber()
	case reflect.Slice:
		wanted = "a list"
	default:
		wanted = "an object"
	}

	if !fits {
		c.Add(path, nil, "is of type %s; use %s", value.TypeString(), wanted)
	}
}
