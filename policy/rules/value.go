package rules

import (
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// maybe is a property that may not be known before the update, which then checks it. A missing property is known, and
// has the zero value.
type maybe[T any] struct {
	Value T
	Known bool
}

// known returns a known value.
func known[T any](value T) maybe[T] { return maybe[T]{Value: value, Known: true} }

// equals reports whether a value is known and equal to another one.
func equals[T comparable](m maybe[T], value T) bool { return m.Known && m.Value == value }

// value is a property as policies read it: no accessor panics, whatever the property is. Accessors read secrets, but
// nothing prints them.
type value struct{ property property.Value }

// root returns all properties of a resource as a value.
func root(properties property.Map) value { return value{property.New(properties)} }

// at returns the property at a path. Below an unknown value everything is unknown; below other values that are not maps
// everything is absent.
func (v value) at(keys ...string) value {
	for _, key := range keys {
		if v.isUnknown() {
			return v
		}

		if !v.property.IsMap() {
			return value{}
		}

		v = value{v.property.AsMap().Get(key)}
	}

	return v
}

// isUnknown reports whether only the update will know the value. Providers made with pulumi-go-provider pass an unknown
// secret as an empty one.
func (v value) isUnknown() bool {
	return v.property.IsComputed() || v.property.Secret() && v.property.IsString() && v.property.AsString() == ""
}

// isAbsent reports whether the property is not set.
func (v value) isAbsent() bool { return v.property.IsNull() }

// items returns the elements of a list, and whether they are known. A list of blocks with one element may come as that
// element.
func (v value) items() ([]value, bool) {
	switch {
	case v.isUnknown():
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
		return nil, v.isAbsent()
	}
}

// text returns a string; other kinds of values are unknown.
func (v value) text() maybe[string] {
	switch {
	case v.isAbsent():
		return known("")
	case v.isUnknown():
		return maybe[string]{}
	case v.property.IsString():
		return known(v.property.AsString())
	default:
		return maybe[string]{}
	}
}

// number returns a number, also from a string: a provider's configuration consists of strings.
func (v value) number() maybe[int] {
	switch {
	case v.isAbsent():
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

// flag returns a boolean, also from a string.
func (v value) flag() maybe[bool] {
	switch {
	case v.isAbsent():
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

// texts returns a list of strings; an unknown element makes it unknown.
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

// isSet reports whether the property is a known string that is not blank.
func (v value) isSet() bool {
	text := v.text()

	return text.Known && strings.TrimSpace(text.Value) != ""
}
