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

// checkInputs returns a component's arguments in a form that its type can read, or an error with every problem of their
// form. The component itself validates the values.
func checkInputs(inputs resource.PropertyMap, arguments reflect.Type) (resource.PropertyMap, error) {
	var c checker

	checked := c.checkObject("", inputs, arguments)

	if len(c.List) > 0 {
		return nil, c.List
	}

	return checked, nil
}

type checker struct{ problem.List }

// canBeSecret are the plain arguments that a component encrypts in the state if its argument secret is true.
var canBeSecret = map[string]bool{ //nolint:gochecknoglobals // a table
	"patches": true, "labels": true, "taints": true,
}

func (c *checker) checkObject(path string, checkObject resource.PropertyMap, structure reflect.Type) resource.PropertyMap {
	types, names, checked := map[string]reflect.Type{}, []string{}, resource.PropertyMap{}
	for _, f := range pulumiFields(structure) {
		types[f.name] = f.kind
		names = append(names, f.name)
	}

	for _, key := range slices.Sorted(maps.Keys(checkObject)) {
		name, value := string(key), checkObject[key]

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
func (c *checker) checkValue(path string, checkValue resource.PropertyValue, kind reflect.Type) resource.PropertyValue {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}

	if checkValue.IsNull() || isInput(kind) {
		return checkValue
	}

	if checkValue.IsOutput() {
		if o := checkValue.OutputValue(); o.Known && !o.Secret && len(o.Dependencies) == 0 {
			return c.checkValue(path, o.Element, kind)
		}
	}

	switch {
	case checkValue.IsSecret() || checkValue.IsOutput() && checkValue.OutputValue().Secret:
		c.Add(path, nil, "is a secret, which would not remain one here; use plain text")
	case checkValue.IsComputed() || checkValue.IsOutput() && !checkValue.OutputValue().Known:
		c.Add(path, nil, "is not known before another resource is created; use a plain value: it determines which resources are registered")
	case checkValue.IsOutput(): // of another resource, but known: only the order of the run could follow from it
		c.Add(path, nil, "is an output of another resource; use a plain value: it determines which resources are registered")
	case kind.Kind() == reflect.Struct && checkValue.IsObject():
		return resource.NewProperty(c.checkObject(path+".", checkValue.ObjectValue(), kind))
	case kind.Kind() == reflect.Slice && checkValue.IsArray():
		var list []resource.PropertyValue
		for i, element := range checkValue.ArrayValue() {
			list = append(list, c.checkValue(fmt.Sprintf("%s[%d]", path, i), element, kind.Elem()))
		}

		return resource.NewProperty(list)
	case kind.Kind() == reflect.Map && checkValue.IsObject():
		object := resource.PropertyMap{}
		for key, element := range checkValue.ObjectValue() {
			object[key] = c.checkValue(path+"."+string(key), element, kind.Elem())
		}

		return resource.NewProperty(object)
	default:
		c.checkScalar(path, checkValue, kind)
	}

	return checkValue
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
