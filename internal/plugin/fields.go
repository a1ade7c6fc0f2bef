package plugin

import (
	"reflect"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// field is a field of a component or its arguments, with its name in other languages.
type field struct {
	name  string
	kind  reflect.Type
	index []int
}

// pulumiFields returns the fields of a struct that exist in other languages.
func pulumiFields(structure reflect.Type) (fields []field) {
	for f := range structure.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("pulumi"), ","); name != "" {
			fields = append(fields, field{name, f.Type, f.Index})
		}
	}

	return fields
}

// Types returns the structs in arguments and outputs of components.
func Types() []reflect.Type {
	var types []reflect.Type

	var add func(reflect.Type)

	add = func(structure reflect.Type) {
		if structure.Kind() != reflect.Struct || isInput(structure) || isText(structure) ||
			slices.Contains(types, structure) {
			return
		}

		types = append(types, structure)

		for _, f := range pulumiFields(structure) {
			add(elementType(f.kind))
		}
	}

	for _, c := range servedComponents() {
		add(c.arguments)
		add(c.output)
	}

	return types
}

// elementType returns the innermost element type of lists, maps and pointers.
func elementType(kind reflect.Type) reflect.Type {
	for !isInput(kind) {
		switch kind.Kind() { //nolint:exhaustive // everything else is a leaf
		case reflect.Pointer, reflect.Slice, reflect.Map:
			kind = kind.Elem()
		default:
			return kind
		}
	}

	return kind
}

// isInput reports whether a value of the type may be an output of another resource.
func isInput(kind reflect.Type) bool { return kind.Implements(reflect.TypeFor[pulumi.Input]()) }
