package proxmoxve

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// form are the parameters of a call.
type form map[string]string

// setNonEmpty sets a parameter unless its value is empty, which Proxmox would refuse.
func (f form) setNonEmpty(name, value string) {
	if value != "" {
		f[name] = value
	}
}

// dropEmpty deletes empty parameters, which a new machine does not get.
func (f form) dropEmpty() {
	maps.DeleteFunc(f, func(_, value string) bool { return value == "" })
}

// options is one of Proxmox' property strings.
type options []string

func (o *options) add(name, value string) { *o = append(*o, name+"="+value) }

// addNonEmpty adds an option unless its value is empty.
func (o *options) addNonEmpty(name, value string) {
	if value != "" {
		o.add(name, value)
	}
}

func (o options) String() string { return strings.Join(o, ",") }

// parseOptions splits a property string; a part without a name is the value of the default option bare.
func parseOptions(text, bare string) map[string]string {
	out := map[string]string{}

	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}

		if name, value, ok := strings.Cut(part, "="); ok {
			out[name] = value
		} else {
			out[bare] = part
		}
	}

	return out
}

func formatBool(v bool) string {
	if v {
		return "1"
	}

	return "0"
}

func isTrue(text string) bool { return text == "1" }

// valueOr returns the value of an option, or absent if it is missing.
func valueOr(o map[string]string, name, absent string) string {
	if v, ok := o[name]; ok {
		return v
	}

	return absent
}

// parseInteger parses an integer, which Proxmox may write as 1.0 or with spaces. Anything else is 0, like a missing
// value.
func parseInteger(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0
	}

	return math.Trunc(n)
}

var sizePattern = regexp.MustCompile(`(?i)^(\d+(?:\.\d+)?)([KMGT]?)(?:i?b)?$`)

// parseSize parses a size such as 40G into bytes; empty is 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}

	parts := sizePattern.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("cannot parse disk size %q: correct it in the VM's configuration", text)
	}

	value, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return 0, fmt.Errorf("cannot parse disk size %q: %w", text, err)
	}

	unit := map[string]float64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[strings.ToUpper(parts[2])]

	return int64(math.Ceil(value * unit)), nil
}

// isConfigKey reports whether an attribute has keys in a machine's configuration: its own, one per element, or those
// of its fields.
func (a attribute) isConfigKey() bool {
	return a.key != "" || a.kind == block && !a.many && slices.ContainsFunc(
		slices.Collect(maps.Values(a.fields)), attribute.isConfigKey,
	)
}

// encode adds a value to a configuration, and returns the attribute's keys that it does not set.
func (a attribute) encode(f form, value any) (absent []string) {
	set := func(key, text string) {
		if text != "" {
			f[key] = text
		} else {
			absent = append(absent, key)
		}
	}

	switch fields, _ := value.(object); {
	case a.many && a.kind == block:
		a.encodeList(f, value)

		for i := range a.maxItems {
			set(fmt.Sprintf(a.key, i), f[fmt.Sprintf(a.key, i)])
		}
	case a.kind == block && a.key == "":
		for name, field := range a.fields {
			switch {
			case field.kind == block && field.isConfigKey():
				absent = append(absent, field.encode(f, fields[name])...)
			case field.isConfigKey():
				set(field.key, field.encodeText(fields[name]))
			}
		}
	case a.kind == block:
		set(a.key, a.encodeText(value))
	default:
		if text := a.encodeText(value); text != "" || a.option == "" {
			f[a.key] = text
		}
	}

	if a.sticky {
		return nil
	}

	return absent
}

// encodeList adds the enabled elements.
func (a attribute) encodeList(f form, value any) {
	for i, element := range blocks(value) {
		key := fmt.Sprintf(a.key, i)
		if a.keyProperty != "" {
			key = str(element, a.keyProperty)
		}

		if element["enabled"] != false {
			f[key] = a.encodeText(element)
		}
	}
}

// encodeText returns a value in Proxmox' form: empty for a number that is not above 0, unless 0 has a meaning
// (exact).
func (a attribute) encodeText(value any) string {
	text := a.absent

	switch v := value.(type) {
	case bool:
		text = formatBool(v)
	case float64:
		if text = ""; v > 0 || v == 0 && a.exact {
			text = strconv.Itoa(int(v))
		}
	case string:
		text = v
	case []any:
		list := stringsOf(v)
		if a.set {
			slices.Sort(list)
		}

		if text = strings.Join(list, cmp.Or(a.separator, ";")); a.escaped {
			text = strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
		}
	case object:
		text = a.fields.options(v).String()
		if a.bare != "" && len(a.fields) == 1 {
			_, text, _ = strings.Cut(text, "=")
		}
	}

	if a.option != "" && text != "" {
		return a.option + "=" + text
	}

	return text
}

// options returns the values of a block by Proxmox' names. Booleans are always included: unset is 0.
func (as attributes) options(values object, without ...string) options {
	var o options

	for _, name := range as.names() {
		a, value := as[name], values[name]

		switch {
		case a.kind == block && a.key == "":
			fields, _ := value.(object)
			o = append(o, a.fields.options(fields)...)
		case a.key == "" || slices.Contains(without, name):
		case a.kind != boolean && value != nil:
			o.addNonEmpty(a.key, a.encodeText(value))
		case a.kind == boolean && (flag(values, name) || !a.trueOnly):
			o.add(a.key, formatBool(flag(values, name)))
		}
	}

	return o
}

// decode reads a value of a configuration; nil is a missing block. Fields that Proxmox does not have keep their
// values.
func (a attribute) decode(config map[string]string, before any) any {
	old, _ := before.(object)
	text, exists := config[a.key]

	switch {
	case a.many && a.kind == block:
		return a.decodeList(config)
	case a.kind == block && a.key == "" && a.fallback == nil && !a.fields.anyIn(config):
		return nil
	case a.kind == block && a.key == "":
		return a.decodeBlock(config, old)
	case a.kind == block && !exists:
		return nil
	case a.kind == block:
		return a.decodeBlock(parseOptions(text, a.bare), old)
	case a.many:
		if plain, err := url.QueryUnescape(text); err == nil && a.escaped {
			text = plain
		}

		list := slices.DeleteFunc(
			strings.Split(text, cmp.Or(a.separator, ";")), func(s string) bool { return strings.TrimSpace(s) == "" },
		)
		if a.set {
			slices.Sort(list) // Proxmox may sort it, too
		}

		return toList(list)
	default:
		return a.decodeScalar(config)
	}
}

func (a attribute) decodeBlock(found map[string]string, before object) object {
	out := a.fields.decodeAll(found)

	for name, field := range a.fields {
		if field.key == "" && field.fallback != nil {
			if out[name] = before[name]; out[name] == nil {
				out[name] = field.fallback
			}
		}
	}

	return out
}

// decodeList reads all elements. A missing one in between gets a placeholder, unless elements have a property with
// their key.
func (a attribute) decodeList(config map[string]string) any {
	out := []any{}

	for i := range a.maxItems {
		name := fmt.Sprintf(a.key, i)

		text, exists := config[name]
		if !exists {
			continue
		}

		for a.keyProperty == "" && len(out) < i {
			out = append(out, a.placeholder)
		}

		found := parseOptions(text, a.bare)
		for _, model := range a.models {
			if address, ok := found[model]; ok {
				found["model"], found["macaddr"] = model, address
			}
		}

		element := a.decodeBlock(found, nil)
		if a.keyProperty != "" {
			element[a.keyProperty] = name
		}

		out = append(out, element)
	}

	return out
}

// anyIn reports whether a configuration has any of the keys.
func (as attributes) anyIn(config map[string]string) bool {
	for _, a := range as {
		if _, exists := config[a.key]; exists {
			return true
		}
	}

	return false
}

// decodeAll returns the values of all attributes that have keys.
func (as attributes) decodeAll(found map[string]string) object {
	out := object{}

	for name, a := range as {
		if a.isConfigKey() {
			out[name] = a.decode(found, nil)
		}
	}

	return out
}

func (a attribute) decodeScalar(found map[string]string) any {
	value := strings.TrimSpace(valueOr(found, a.key, a.absent))
	if a.option != "" {
		value = parseOptions(value, a.option)[a.option]
	}

	switch a.kind {
	case boolean:
		return isTrue(value)
	case integer:
		return parseInteger(value)
	case text, texts, block:
		return value
	}

	return nil
}
