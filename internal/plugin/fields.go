package plugin

import (
	"reflect"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// field is a field of a component or of its arguments, by its name in other languages.
type field struct {
	name string
	kind reflect.Type
}

// fieldsOf are the fields of a struct that other languages have.
func fieldsOf(structure reflect.Type) (fields []field) {
	for f := range structure.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("pulumi"), ","); name != "" {
			fields = append(fields, field{name, f.Type})
		}
	}

	return fields
}

// Types are the structs that components take and give.
func Types() []reflect.Type {
	var types []reflect.Type

	var add func(reflect.Type)

	add = func(structure reflect.Type) {
		if structure.Kind() != reflect.Struct || isInput(structure) || slices.Contains(types, structure) {
			return
		}

		types = append(types, structure)

		for _, f := range fieldsOf(structure) {
			add(leafOf(f.kind))
		}
	}

	for _, c := range all() {
		add(c.arguments)
		add(c.output)
	}

	return types
}

// leafOf is what a list, a map or a pointer is made of.
func leafOf(kind reflect.Type) reflect.Type {
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

// isInput says whether a value may come from another resource.
func isInput(kind reflect.Type) bool { return kind.Implements(reflect.TypeFor[pulumi.Input]()) }
