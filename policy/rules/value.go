package rules

import (
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// maybe is what a plan says of a property. Known is false where the plan does not know yet: a judgement is then left to
// the update. A property that is not there is known, and has the zero value.
type maybe[T any] struct {
	Value T
	Known bool
}

// known is a value that the plan knows.
func known[T any](value T) maybe[T] { return maybe[T]{Value: value, Known: true} }

// is tells whether the value is known to be this one.
func is[T comparable](m maybe[T], value T) bool { return m.Known && m.Value == value }

// value is a property as a judgement reads it: no reading of it panics, whatever the property really is. Secrets are
// looked into; nothing prints them.
type value struct{ property property.Value }

// root is all properties of a resource.
func root(properties property.Map) value { return value{property.New(properties)} }

// at goes to a property by its name. Below something unknown everything is unknown; below something of another kind
// there is nothing.
func (v value) at(keys ...string) value {
	for _, key := range keys {
		if v.unknown() {
			return v
		}

		if !v.property.IsMap() {
			return value{}
		}

		v = value{v.property.AsMap().Get(key)}
	}

	return v
}

// unknown tells a value that only the update will know. Providers made with pulumi-go-provider hand an unknown secret
// on as an empty one.
func (v value) unknown() bool {
	return v.property.IsComputed() || v.property.Secret() && v.property.IsString() && v.property.AsString() == ""
}

// absent tells a property that is not there.
func (v value) absent() bool { return v.property.IsNull() }

// items are the elements of a list, and whether it is known which there are. A list of blocks with one element may come
// as that element.
func (v value) items() ([]value, bool) {
	switch {
	case v.unknown():
		return nil, false
	case v.property.IsArray():
		elements := v.property.AsArray().AsSlice()
		list := make([]value, len(elements))

		for i, element := range elements {
			list[i] = value{element}
		}

		return list, true
	case v.property.IsMap():
		return []value{v}, true
	default:
		return nil, v.absent()
	}
}

// text reads a string. What is there but no string is not known.
func (v value) text() maybe[string] {
	switch {
	case v.absent():
		return known("")
	case v.unknown():
		return maybe[string]{}
	case v.property.IsString():
		return known(v.property.AsString())
	default:
		return maybe[string]{}
	}
}

// number reads a number, or the digits of one: a provider's own configuration comes as strings.
func (v value) number() maybe[int] {
	switch {
	case v.absent():
		return known(0)
	case v.property.IsNumber():
		return known(int(v.property.AsNumber()))
	case v.property.IsString():
		if n, err := strconv.Atoi(v.property.AsString()); err == nil {
			return known(n)
		}
	}

	return maybe[int]{}
}

// flag reads a boolean, or the word for one.
func (v value) flag() maybe[bool] {
	switch {
	case v.absent():
		return known(false)
	case v.property.IsBool():
		return known(v.property.AsBool())
	case v.property.IsString():
		if b, err := strconv.ParseBool(v.property.AsString()); err == nil {
			return known(b)
		}
	}

	return maybe[bool]{}
}

// texts reads a list of strings; one that is not known makes the list unknown.
func (v value) texts() maybe[[]string] {
	items, ok := v.items()
	if !ok {
		return maybe[[]string]{}
	}

	list := make([]string, 0, len(items))

	for _, item := range items {
		text := item.text()
		if !text.Known {
			return maybe[[]string]{}
		}

		list = append(list, text.Value)
	}

	return known(list)
}

// given tells a string property that says something: what is unknown, empty or not there does not.
func (v value) given() bool {
	text := v.text()

	return text.Known && strings.TrimSpace(text.Value) != ""
}
