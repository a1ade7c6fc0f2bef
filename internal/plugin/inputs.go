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

// checkInputs returns a component's arguments in a form that its type can read and the texts of those that are parsed,
// or an error with every problem of their form. The component itself validates the values.
func checkInputs(inputs resource.PropertyMap, arguments reflect.Type) (resource.PropertyMap, texts, error) {
	c := checker{texts: texts{}}

	checked := c.checkObject("", inputs, arguments)

	if len(c.List) > 0 {
		return nil, nil, c.List
	}

	return checked, c.texts, nil
}

type checker struct {
	problem.List

	texts texts
}

// canBeSecret are the plain arguments that a component encrypts in the state if its argument secret is true.
var canBeSecret = map[string]bool{ //nolint:gochecknoglobals // a table
	"patches": true, "labels": true, "taints": true,
}

func (c *checker) checkObject(path string, object resource.PropertyMap, structure reflect.Type) resource.PropertyMap {
	types, names, checked := map[string]reflect.Type{}, []string{}, resource.PropertyMap{}
	for _, f := range pulumiFields(structure) {
		types[f.name] = f.kind
		names = append(names, f.name)
	}

	for _, key := range slices.Sorted(maps.Keys(object)) {
		name, value := string(key), object[key]

		kind, known := types[name]
		if !known {
			if !resource.IsInternalPropertyKey(key) {
				c.Add(path+name, nil, "there is no such input; choose one of %s", strings.Join(names, ", "))
			}

			continue
		}

		if _, ok := types["secret"]; ok && canBeSecret[name] && value.ContainsSecrets() && !isInput(kind) {
			value, checked["secret"] = withoutSecrets(value), resource.NewProperty(true)
		}

		if _, set := checked[key]; !set {
			checked[key] = c.checkValue(path+name, value, kind)
		}
	}

	return checked
}

// withoutSecrets returns a value with its secrets unwrapped.
func withoutSecrets(value resource.PropertyValue) resource.PropertyValue {
	switch {
	case value.IsSecret():
		return withoutSecrets(value.SecretValue().Element)
	case value.IsOutput():
		output := value.OutputValue()
		output.Secret, output.Element = false, withoutSecrets(output.Element)

		return resource.NewProperty(output)
	case value.IsArray():
		var list []resource.PropertyValue
		for _, element := range value.ArrayValue() {
			list = append(list, withoutSecrets(element))
		}

		return resource.NewProperty(list)
	case value.IsObject():
		object := resource.PropertyMap{}
		for key, element := range value.ObjectValue() {
			object[key] = withoutSecrets(element)
		}

		return resource.NewProperty(object)
	}

	return value
}

// checkValue checks a value for a type. Inputs may be outputs of other resources, which the SDK reads.
func (c *checker) checkValue(path string, value resource.PropertyValue, kind reflect.Type) resource.PropertyValue {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}

	if value.IsNull() || isInput(kind) {
		return value
	}

	if value.IsOutput() {
		if o := value.OutputValue(); o.Known && !o.Secret && len(o.Dependencies) == 0 {
			return c.checkValue(path, o.Element, kind)
		}
	}

	switch {
	case value.IsSecret() || value.IsOutput() && value.OutputValue().Secret:
		c.Add(path, nil, "is a secret, which would not remain one here; use plain text")
	case value.IsComputed() || value.IsOutput() && !value.OutputValue().Known:
		c.Add(path, nil, "is not known before another resource is created; use a plain value: it determines which resources are registered")
	case value.IsOutput(): // known, but it would make the registration depend on another resource
		c.Add(path, nil, "is an output of another resource; use a plain value: it determines which resources are registered")
	case isText(kind):
		c.checkText(path, value, kind)

		return resource.NewNullProperty()
	case kind.Kind() == reflect.Struct && value.IsObject():
		return resource.NewProperty(c.checkObject(path+".", value.ObjectValue(), kind))
	case kind.Kind() == reflect.Slice && value.IsArray():
		var list []resource.PropertyValue
		for i, element := range value.ArrayValue() {
			list = append(list, c.checkValue(fmt.Sprintf("%s[%d]", path, i), element, kind.Elem()))
		}

		return resource.NewProperty(list)
	case kind.Kind() == reflect.Map && value.IsObject():
		object := resource.PropertyMap{}
		for key, element := range value.ObjectValue() {
			object[key] = c.checkValue(path+"."+string(key), element, kind.Elem())
		}

		return resource.NewProperty(object)
	default:
		c.checkScalar(path, value, kind)
	}

	return value
}

// checkScalar checks a string, a number or a boolean.
func (c *checker) checkScalar(path string, value resource.PropertyValue, kind reflect.Type) {
	wanted, ok := "", false

	switch kind.Kind() { //nolint:exhaustive // the types that arguments have
	case reflect.String:
		wanted, ok = "a text", value.IsString()
	case reflect.Bool:
		wanted, ok = "true or false", value.IsBool()
	case reflect.Int:
		wanted, ok = "a whole number", value.IsNumber() && value.NumberValue() == math.Trunc(value.NumberValue())
	case reflect.Float64:
		wanted, ok = "a number", value.IsNumber()
	case reflect.Slice:
		wanted = "a list"
	default:
		wanted = "an object"
	}

	if !ok {
		c.Add(path, nil, "is of type %s; use %s", value.TypeString(), wanted)
	}
}
