package spec

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/problem"
)

// secretKey is a key of the same namespace that package stacks reads.
const secretKey = "sshPrivateKey"

// parseValues parses the top-level values.
func parseValues(values map[string]string) map[string]any {
	parsed := make(map[string]any, len(values))
	for key, text := range values {
		if key == secretKey || strings.TrimSpace(text) == "" {
			continue
		}

		parsed[key] = parseValue(text)
	}

	return parsed
}

// decode decodes the top-level values on top of the defaults.
func decode(parsed map[string]any, found secrets, problems *problem.List) Config {
	var config Config

	d := decoder{problems, found}
	d.decodeStruct("", parsed, reflect.ValueOf(&config).Elem())

	return config
}

// parseValue returns the JSON value of a text, or the text itself if it is not JSON: Pulumi passes plain values
// unquoted.
func parseValue(text string) any {
	reader := json.NewDecoder(strings.NewReader(text))
	reader.UseNumber()

	var value any
	if err := reader.Decode(&value); err != nil {
		return text
	}

	if _, err := reader.Token(); err != io.EOF {
		return text
	}

	return value
}

type decoder struct {
	problems *problem.List
	secrets  secrets
}

// decodeValue decodes in into out, which contains the default.
func (d decoder) decodeValue(path string, in any, out reflect.Value, r rules) {
	if !r.secret && d.secrets.isSingleValue(path) {
		d.problems.Add(path, nil, "is stored encrypted but would be shown in plain text: only %s are kept secret; "+
			"store it in plain text, without --secret", secretTexts())

		return
	}

	switch out.Kind() { //nolint:exhaustive // these are the kinds of the configuration types
	case reflect.Struct:
		if object, ok := in.(map[string]any); ok {
			d.decodeStruct(path, object, out)

			return
		}

		d.reportType(path, in, "a map of keys", r)
	case reflect.Slice:
		d.decodeList(path, in, out, r)
	case reflect.Map:
		d.decodeMap(path, in, out, r)
	case reflect.Pointer:
		out.Set(reflect.New(out.Type().Elem()))
		d.decodeValue(path, in, out.Elem(), r)
	case reflect.String:
		d.decodeText(path, in, out, r)
	case reflect.Int:
		d.decodeInt(path, in, out, r)
	case reflect.Float64:
		d.decodeFloat(path, in, out, r)
	case reflect.Interface: // of any form, such as a value of a chart
		if in != nil {
			out.Set(reflect.ValueOf(in))
		}
	case reflect.Bool:
		if truth, ok := in.(bool); ok {
			out.SetBool(truth)

			return
		}

		d.reportType(path, in, "a boolean", r)
	}
}

func (d decoder) decodeStruct(path string, in map[string]any, out reflect.Value) {
	setDefaults(out)

	fields := configFields(out.Type())
	for _, key := range slices.Sorted(maps.Keys(in)) {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.key == key }) {
			d.problems.Add(joinPath(path, key), nil, "is not a key of the configuration; %s", Suggest(key, fieldKeys(fields)))
		}
	}

	for _, f := range fields {
		if value := in[f.key]; value != nil {
			d.decodeValue(joinPath(path, f.key), value, out.FieldByIndex(f.index), f.rules)
		} else if f.rules.required {
			d.problems.Add(joinPath(path, f.key), nil, "is missing; set it%s", exampleText(f))
		}
	}
}

func (d decoder) decodeList(path string, in any, out reflect.Value, r rules) {
	items, ok := in.([]any)
	if !ok {
		d.reportType(path, in, "a list", r)

		return
	}

	if len(items) < r.minItems {
		d.problems.Add(path, nil, "is an empty list; add at least %d entry", r.minItems)
	}

	out.Set(reflect.MakeSlice(out.Type(), len(items), len(items)))

	for i, item := range items {
		d.decodeValue(fmt.Sprintf("%s[%d]", path, i), item, out.Index(i), r)
	}
}

func (d decoder) decodeMap(path string, in any, out reflect.Value, r rules) {
	object, ok := in.(map[string]any)
	if !ok {
		d.reportType(path, in, "a map of names", r)

		return
	}

	out.Set(reflect.MakeMapWithSize(out.Type(), len(object)))

	for _, key := range slices.Sorted(maps.Keys(object)) {
		item := reflect.New(out.Type().Elem()).Elem()
		d.decodeValue(joinPath(path, key), object[key], item, rules{secret: r.secret})
		out.SetMapIndex(reflect.ValueOf(key), item)
	}
}

func (d decoder) decodeText(path string, in any, out reflect.Value, r rules) {
	text, ok := in.(string)
	if !ok {
		d.reportType(path, in, "text", r)

		return
	}

	if len(r.enum) > 0 && !slices.Contains(r.enum, text) {
		d.problems.Add(path, text, "is not a valid value here%s; %s", r.because, Suggest(text, r.enum))

		return
	}

	if text == "" && r.required {
		d.problems.Add(path, text, "is empty; set it%s", exampleText(field{rules: r}))

		return
	}

	if text == "" && r.defaultValue != "" {
		d.problems.Add(path, text, "is empty; leave it out for the default %s", r.defaultValue)

		return
	}

	out.SetString(text)
}

func (d decoder) decodeInt(path string, in any, out reflect.Value, r rules) {
	literal, ok := in.(json.Number)
	if !ok {
		d.reportType(path, in, "a whole number", r)

		return
	}

	number, err := strconv.Atoi(literal.String())
	if err != nil {
		d.problems.Add(path, in, "is not a whole number that fits; write it without fraction or exponent")

		return
	}

	if d.checkLimits(path, literal, float64(number), r) {
		out.SetInt(int64(number))
	}
}

// decodeFloat decodes a number that may have a fraction.
func (d decoder) decodeFloat(path string, in any, out reflect.Value, r rules) {
	literal, ok := in.(json.Number)
	if !ok {
		d.reportType(path, in, "a number", r)

		return
	}

	number, err := literal.Float64()
	if err != nil {
		d.problems.Add(path, in, "is not a number that fits; write it as 9.6")

		return
	}

	if d.checkLimits(path, literal, number, r) {
		out.SetFloat(number)
	}
}

// checkLimits reports a number outside of its limits, and returns whether it is inside.
func (d decoder) checkLimits(path string, literal json.Number, number float64, r rules) bool {
	switch {
	case r.minimum != nil && number < float64(*r.minimum) && number > 0 && strings.HasSuffix(path, "MiB"):
		d.problems.Add(path, literal, "is too small; use at least %d: it is in MiB, and %s GiB are %.0f", *r.minimum, literal,
			number*mebibytes["G"])
	case r.minimum != nil && number < float64(*r.minimum):
		d.problems.Add(path, literal, "is too small; use at least %d", *r.minimum)
	case r.maximum != nil && number > float64(*r.maximum):
		d.problems.Add(path, literal, "is too large; use at most %d", *r.maximum)
	default:
		return true
	}

	return false
}

// reportType reports a value of the wrong type. It does not show lists, maps and patches, which are long and may
// contain secrets.
func (d decoder) reportType(path string, in any, want string, r rules) {
	have, shown := "nothing", in
	switch in.(type) {
	case string:
		have = "text"
	case json.Number:
		have = "a number"
	case bool:
		have = "a boolean"
	case []any:
		have, shown = "a list", nil
	case map[string]any:
		have, shown = "a map", nil
	}

	remedy := "write " + want
	switch {
	case strings.Contains(path, "patches"):
		shown, remedy = nil, "write each patch as YAML text, in a block that begins with |"
	case want == "text" && shown != nil:
		remedy = "write it in quotes"
		if versionFormat.pattern.MatchString(r.example) {
			remedy = "write it in full, as " + r.example
		}
	case strings.HasSuffix(want, "number") && have == "text":
		remedy = "write it without quotes and without a unit" + sizeInUnit(path, in)
	case want == "a boolean":
		remedy = "write true or false, without quotes"
	case want == "a list" && shown != nil:
		remedy = "write it as a list with - before each entry"
	}

	d.problems.Add(path, shown, "is %s where %s belongs; %s", have, want, remedy)
}

var sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([MGT])i?B?$`)

// mebibytes are how many MiB units of sizes have, as people mean them.
var mebibytes = map[string]float64{"M": 1, "G": 1 << 10, "T": 1 << 20}

// sizeInUnit returns the number for a size with a unit, in the unit of its key; empty = it is no size.
func sizeInUnit(path string, in any) string {
	text, _ := in.(string)
	parts := sizePattern.FindStringSubmatch(text)

	unit := mebibytes["M"]
	if strings.HasSuffix(path, "GiB") {
		unit = mebibytes["G"]
	}

	if parts == nil || unit == 1 && !strings.HasSuffix(path, "MiB") {
		return ""
	}

	number, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return ""
	}

	return ", as " + strconv.FormatFloat(number*mebibytes[parts[2]]/unit, 'f', -1, 64)
}

func exampleText(f field) string {
	switch {
	case f.rules.example != "" && f.key != "":
		return fmt.Sprintf(", such as %s: %s", f.key, f.rules.example)
	case f.rules.example != "":
		return ", such as " + f.rules.example
	default:
		return " as docs/configuration.md shows"
	}
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// joinPath appends a key to a path.
func joinPath(path, key string) string {
	switch {
	case path == "" && plainKey.MatchString(key):
		return key
	case plainKey.MatchString(key):
		return path + "." + key
	default:
		return path + "[" + problem.EncodeValue(key) + "]"
	}
}
