package plugin

import (
	"encoding"
	"fmt"
	"net/netip"
	"reflect"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// textReference is what the tag provider:"type=go@1:netip:text" of such arguments becomes in infer's schema. Without
// the tag, infer would describe their types as objects.
const textReference = "/go/v1.0.0/schema.json#/types/go:netip:text"

// textForms are the types of arguments that are texts in other languages, with what is wrong with another text.
// Pulumi's SDK cannot read them.
var textForms = map[reflect.Type]string{ //nolint:gochecknoglobals // a table
	reflect.TypeFor[netip.Addr]():   "is not an IP address; use one such as 10.0.0.2",
	reflect.TypeFor[netip.Prefix](): "is not an address or network with its prefix length; use one such as 10.0.0.10/24",
}

func isText(kind reflect.Type) bool { return textForms[kind] != "" }

// parse parses a text into a variable of a type of [textForms].
func parse(text string, into reflect.Value) error {
	return into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
}

// checkText checks the text of a value that is parsed, and keeps it.
func (c *checker) checkText(path string, value resource.PropertyValue, kind reflect.Type) {
	c.checkScalar(path, value, reflect.TypeFor[string]())

	if !value.IsString() {
		return
	}

	c.texts[path] = value.StringValue()
	if parse(c.texts[path], reflect.New(kind).Elem()) != nil {
		c.Add(path, c.texts[path], "%s", textForms[kind])
	}
}

// texts are arguments of the types of [textForms], by path: nodes[0].address.
type texts map[string]string

// parseInto sets them in a component's arguments, which have everything else.
func (t texts) parseInto(path string, value reflect.Value) error {
	kind := value.Type()

	switch {
	case isText(kind):
		return parse(t[path], value)
	case isInput(kind):
	case kind.Kind() == reflect.Pointer && !value.IsNil():
		return t.parseInto(path, value.Elem())
	case kind.Kind() == reflect.Slice:
		for i := range value.Len() {
			if err := t.parseInto(fmt.Sprintf("%s[%d]", path, i), value.Index(i)); err != nil {
				return err
			}
		}
	case kind.Kind() == reflect.Struct:
		for _, f := range pulumiFields(kind) {
			at := f.name
			if path != "" {
				at = path + "." + at
			}

			if err := t.parseInto(at, value.FieldByIndex(f.index)); err != nil {
				return err
			}
		}
	}

	return nil
}
