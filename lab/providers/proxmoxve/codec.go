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

// form is the parameters of a call.
type form map[string]string

// some adds what is set: an empty value would be a refusal.
func (f form) some(name, value string) {
	if value != "" {
		f[name] = value
	}
}

// clean takes out what is not set, of which a new machine is told nothing.
func (f form) clean() {
	maps.DeleteFunc(f, func(_, value string) bool { return value == "" })
}

// options builds one of Proxmox' property strings.
type options []string

func (o *options) add(name, value string) { *o = append(*o, name+"="+value) }

// some adds a value that is set.
func (o *options) some(name, value string) {
	if value != "" {
		o.add(name, value)
	}
}

func (o options) String() string { return strings.Join(o, ",") }

// parseOptions takes a property string apart; a part without a name gets that of the default option.
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

func bit(v bool) string {
	if v {
		return "1"
	}

	return "0"
}

func isTrue(text string) bool { return text == "1" }

// orElse returns the value of an option, or what its absence means.
func orElse(o map[string]string, name, absent string) string {
	if v, ok := o[name]; ok {
		return v
	}

	return absent
}

// whole reads an integer; Proxmox writes some of them as 1.0 or with spaces, and what is none counts as 0, like an
// absent value.
func whole(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0
	}

	return math.Trunc(n)
}

var sizeText = regexp.MustCompile(`(?i)^(\d+(?:\.\d+)?)([KMGT]?)(?:i?b)?$`)

// parseSize reads a size such as 40G into bytes; none is 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}

	parts := sizeText.FindStringSubmatch(text)
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

// configured tells the attributes that are keys of a machine's configuration: one key, one for each element, or those
// of the fields.
func (a attribute) configured() bool {
	return a.key != "" || a.kind == block && !a.many && slices.ContainsFunc(
		slices.Collect(maps.Values(a.fields)), attribute.configured,
	)
}

// encode adds a value to a configuration, and returns those of its keys that it leaves out.
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

		for i := range a.most {
			set(fmt.Sprintf(a.key, i), f[fmt.Sprintf(a.key, i)])
		}
	case a.kind == block && a.key == "":
		for name, field := range a.fields {
			switch {
			case field.kind == block && field.configured():
				absent = append(absent, field.encode(f, fields[name])...)
			case field.configured():
				set(field.key, field.text(fields[name]))
			}
		}
	case a.kind == block:
		set(a.key, a.text(value))
	default:
		if text := a.text(value); text != "" || a.option == "" {
			f[a.key] = text
		}
	}

	if a.sticky {
		return nil
	}

	return absent
}

// encodeList adds the elements that are not switched off.
func (a attribute) encodeList(f form, value any) {
	for i, element := range blocks(value) {
		key := fmt.Sprintf(a.key, i)
		if a.place != "" {
			key = str(element, a.place)
		}

		if element["enabled"] != false {
			f[key] = a.text(element)
		}
	}
}

// text is a value as Proxmox has it: empty for a number that is not above 0, unless 0 is something else than nothing.
func (a attribute) text(value any) string {
	text := a.absent

	switch v := value.(type) {
	case bool:
		text = bit(v)
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

		if text = strings.Join(list, cmp.Or(a.joint, ";")); a.escaped {
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

// options are the stated values of a block in Proxmox' names. Booleans are always sent: unset is 0.
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
			o.some(a.key, a.text(value))
		case a.kind == boolean && (flag(values, name) || !a.trueOnly):
			o.add(a.key, bit(flag(values, name)))
		}
	}

	return o
}

// decode reads a value of a configuration; nil is a block that is not there. What of it is not in Proxmox stays as it
// was before.
func (a attribute) decode(config map[string]string, before any) any {
	old, _ := before.(object)
	text, exists := config[a.key]

	switch {
	case a.many && a.kind == block:
		return a.decodeList(config)
	case a.kind == block && a.key == "" && a.fallback == nil && !a.fields.stated(config):
		return nil
	case a.kind == block && a.key == "":
		return a.block(config, old)
	case a.kind == block && !exists:
		return nil
	case a.kind == block:
		return a.block(parseOptions(text, a.bare), old)
	case a.many:
		if plain, err := url.QueryUnescape(text); err == nil && a.escaped {
			text = plain
		}

		list := slices.DeleteFunc(
			strings.Split(text, cmp.Or(a.joint, ";")), func(s string) bool { return strings.TrimSpace(s) == "" },
		)
		if a.set {
			slices.Sort(list) // because Proxmox may
		}

		return toList(list)
	default:
		return a.decoded(config)
	}
}

func (a attribute) block(found map[string]string, before object) object {
	out := a.fields.decoded(found)

	for name, field := range a.fields {
		if field.key == "" && field.fallback != nil {
			if out[name] = before[name]; out[name] == nil {
				out[name] = field.fallback
			}
		}
	}

	return out
}

// decodeList reads elements up to the last one; one that is missing in between keeps its place, unless elements name
// theirs.
func (a attribute) decodeList(config map[string]string) any {
	out := []any{}

	for i := range a.most {
		name := fmt.Sprintf(a.key, i)

		text, exists := config[name]
		if !exists {
			continue
		}

		for a.place == "" && len(out) < i {
			out = append(out, a.missing)
		}

		found := parseOptions(text, a.bare)
		for _, model := range a.models {
			if address, ok := found[model]; ok {
				found["model"], found["macaddr"] = model, address
			}
		}

		element := a.block(found, nil)
		if a.place != "" {
			element[a.place] = name
		}

		out = append(out, element)
	}

	return out
}

// stated says whether a configuration has any of the keys.
func (as attributes) stated(config map[string]string) bool {
	for _, a := range as {
		if _, exists := config[a.key]; exists {
			return true
		}
	}

	return false
}

// decoded are the values of everything that has a name in Proxmox.
func (as attributes) decoded(found map[string]string) object {
	out := object{}

	for name, a := range as {
		if a.configured() {
			out[name] = a.decode(found, nil)
		}
	}

	return out
}

func (a attribute) decoded(found map[string]string) any {
	value := strings.TrimSpace(orElse(found, a.key, a.absent))
	if a.option != "" {
		value = parseOptions(value, a.option)[a.option]
	}

	switch a.kind {
	case boolean:
		return isTrue(value)
	case integer:
		return whole(value)
	case text, texts, block:
		return value
	}

	return nil
}
