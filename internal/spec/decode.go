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

// secretKey is configuration of the same namespace that stacks reads.
const secretKey = "sshPrivateKey"

// parseAll returns the top-level values.
func parseAll(values map[string]string) map[string]any {
	parsed := make(map[string]any, len(values))
	for key, text := range values {
		if key == secretKey || strings.TrimSpace(text) == "" {
			continue
		}

		parsed[key] = parse(text)
	}

	return parsed
}

// decode reads the top-level values over the defaults.
func decode(parsed map[string]any, found secrets, problems *problem.List) Config {
	var config Config

	d := decoder{problems, found}
	d.structure("", parsed, reflect.ValueOf(&config).Elem())

	return config
}

// parse returns the JSON value of a text. What is not JSON is plain text, as Pulumi hands it over.
func parse(text string) any {
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

// value reads in into out, which holds the default already.
func (d decoder) value(path string, in any, out reflect.Value, r rules) {
	if !r.secret && d.secrets.single(path) {
		d.problems.Add(path, nil, "is stored encrypted, and would be shown all the same: only %s are kept secret; "+
			"store it in plain text, without --secret", secretTexts())

		return
	}

	switch out.Kind() { //nolint:exhaustive // these are the kinds of the configuration types
	case reflect.Struct:
		if object, ok := in.(map[string]any); ok {
			d.structure(path, object, out)

			return
		}

		d.wrong(path, in, "a map of keys")
	case reflect.Slice:
		d.list(path, in, out, r)
	case reflect.Map:
		d.mapping(path, in, out, r)
	case reflect.Pointer:
		out.Set(reflect.New(out.Type().Elem()))
		d.value(path, in, out.Elem(), r)
	case reflect.String:
		d.text(path, in, out, r)
	case reflect.Int:
		d.number(path, in, out, r)
	case reflect.Float64:
		d.fraction(path, in, out, r)
	case reflect.Interface: // a value of whatever form, such as one of a chart
		if in != nil {
			out.Set(reflect.ValueOf(in))
		}
	case reflect.Bool:
		if truth, ok := in.(bool); ok {
			out.SetBool(truth)

			return
		}

		d.wrong(path, in, "a boolean")
	}
}

func (d decoder) structure(path string, in map[string]any, out reflect.Value) {
	fill(out)

	fields := fieldsOf(out.Type())
	for _, key := range slices.Sorted(maps.Keys(in)) {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.key == key }) {
			d.problems.Add(join(path, key), nil, "is not a key of the configuration; %s", Suggest(key, keysOf(fields)))
		}
	}

	for _, f := range fields {
		if value := in[f.key]; value != nil {
			d.value(join(path, f.key), value, out.FieldByIndex(f.index), f.rules)
		} else if f.rules.required {
			d.problems.Add(join(path, f.key), nil, "is missing; set it%s", exampleOf(f))
		}
	}
}

func (d decoder) list(path string, in any, out reflect.Value, r rules) {
	items, ok := in.([]any)
	if !ok {
		d.wrong(path, in, "a list")

		return
	}

	if len(items) < r.minItems {
		d.problems.Add(path, nil, "is an empty list; add at least %d entry", r.minItems)
	}

	out.Set(reflect.MakeSlice(out.Type(), len(items), len(items)))

	for i, item := range items {
		d.value(fmt.Sprintf("%s[%d]", path, i), item, out.Index(i), r)
	}
}

func (d decoder) mapping(path string, in any, out reflect.Value, r rules) {
	object, ok := in.(map[string]any)
	if !ok {
		d.wrong(path, in, "a map of names")

		return
	}

	out.Set(reflect.MakeMapWithSize(out.Type(), len(object)))

	for _, key := range slices.Sorted(maps.Keys(object)) {
		item := reflect.New(out.Type().Elem()).Elem()
		d.value(join(path, key), object[key], item, rules{secret: r.secret})
		out.SetMapIndex(reflect.ValueOf(key), item)
	}
}

func (d decoder) text(path string, in any, out reflect.Value, r rules) {
	text, ok := in.(string)
	if !ok {
		d.wrong(path, in, "text")

		return
	}

	if len(r.enum) > 0 && !slices.Contains(r.enum, text) {
		d.problems.Add(path, text, "is not a choice here%s; %s", r.because, Suggest(text, r.enum))

		return
	}

	if text == "" && r.required {
		d.problems.Add(path, text, "is empty; set it%s", exampleOf(field{rules: r}))

		return
	}

	if text == "" && r.fallback != "" {
		d.problems.Add(path, text, "is empty; leave it out for the default %s", r.fallback)

		return
	}

	out.SetString(text)
}

func (d decoder) number(path string, in any, out reflect.Value, r rules) {
	stated, ok := in.(json.Number)
	if !ok {
		d.wrong(path, in, "a whole number")

		return
	}

	number, err := strconv.Atoi(stated.String())
	if err != nil {
		d.problems.Add(path, in, "is not a whole number that fits; write it without fraction or exponent")

		return
	}

	if d.within(path, stated, float64(number), r) {
		out.SetInt(int64(number))
	}
}

// fraction reads a number that may have a fraction.
func (d decoder) fraction(path string, in any, out reflect.Value, r rules) {
	stated, ok := in.(json.Number)
	if !ok {
		d.wrong(path, in, "a number")

		return
	}

	number, err := stated.Float64()
	if err != nil {
		d.problems.Add(path, in, "is not a number that fits; write it as 9.6")

		return
	}

	if d.within(path, stated, number, r) {
		out.SetFloat(number)
	}
}

// within reports a number outside its limits.
func (d decoder) within(path string, stated json.Number, number float64, r rules) bool {
	switch {
	case r.minimum != nil && number < float64(*r.minimum):
		d.problems.Add(path, stated, "is too small; use at least %d", *r.minimum)
	case r.maximum != nil && number > float64(*r.maximum):
		d.problems.Add(path, stated, "is too large; use at most %d", *r.maximum)
	default:
		return true
	}

	return false
}

// wrong reports a value of another type. Lists, maps and patches are not shown: they are long, and may hold secrets.
func (d decoder) wrong(path string, in any, want string) {
	is, shown := "nothing", in
	switch in.(type) {
	case string:
		is = "text"
	case json.Number:
		is = "a number"
	case bool:
		is = "a boolean"
	case []any:
		is, shown = "a list", nil
	case map[string]any:
		is, shown = "a map", nil
	}

	remedy := "write " + want
	switch {
	case strings.Contains(path, "patches"):
		shown, remedy = nil, "write each patch as YAML text, in a block that begins with |"
	case want == "text" && shown != nil:
		remedy = "write it in quotes"
	case strings.HasSuffix(want, "number") && is == "text":
		remedy = "write it without quotes and without a unit"
	case want == "a boolean":
		remedy = "write true or false, without quotes"
	case want == "a list" && shown != nil:
		remedy = "write it as a list with - before each entry"
	}

	d.problems.Add(path, shown, "is %s where %s belongs; %s", is, want, remedy)
}

func exampleOf(f field) string {
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

// join adds a key to a path.
func join(path, key string) string {
	switch {
	case path == "" && plainKey.MatchString(key):
		return key
	case plainKey.MatchString(key):
		return path + "." + key
	default:
		return path + "[" + problem.Show(key) + "]"
	}
}
