package spec

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// rules are the rules for a single value in a field's jsonschema tag.
type rules struct {
	required         bool
	defaultValue     string // the default; empty = the zero value
	example          string
	enum             []string
	because          string // why there is no other choice: ", because …"
	minimum, maximum *int
	minItems         int
	secret           bool // remains secret if it is stored encrypted
}

// field is a key of a configuration type; keys of embedded types count as the type's own.
type field struct {
	key   string
	index []int
	rules rules
}

func configFields(t reflect.Type) []field {
	var fields []field

	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			for _, inner := range configFields(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}

			continue
		}

		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "-" {
			continue // not a key of stack files
		}

		r := parseRules(f.Tag.Get("jsonschema"))
		r.secret = CanBeSecret(key)
		fields = append(fields, field{key: key, index: []int{i}, rules: r})
	}

	return fields
}

func parseRules(tag string) rules {
	var r rules

	for part := range strings.SplitSeq(tag, ",") {
		name, value, _ := strings.Cut(part, "=")
		number, err := strconv.Atoi(value)

		switch name {
		case "required":
			r.required = true
		case "default":
			r.defaultValue = value
		case "example":
			r.example = value
		case "enum":
			r.enum = append(r.enum, value)
		case "because":
			r.because = ", because " + value
		case "minimum":
			if err == nil {
				r.minimum = &number
			}
		case "maximum":
			if err == nil {
				r.maximum = &number
			}
		case "minItems":
			r.minItems = number
		}
	}

	return r
}

// setDefaults sets the defaults of zero fields in a struct, and in the structs in it.
func setDefaults(out reflect.Value) {
	for _, f := range configFields(out.Type()) {
		value := out.FieldByIndex(f.index)

		switch kind := value.Kind(); { // the other kinds start empty
		case kind == reflect.Struct:
			setDefaults(value)
		case !value.IsZero():
		case kind == reflect.String:
			value.SetString(f.rules.defaultValue)
		case kind == reflect.Int:
			number, _ := strconv.Atoi(f.rules.defaultValue)
			value.SetInt(int64(number))
		case kind == reflect.Bool:
			value.SetBool(f.rules.defaultValue == "true")
		}
	}
}

func fieldKeys(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}

	return keys
}

// Suggest returns the remedy for an unknown name: the nearest known one, or all.
func Suggest(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}

	sorted := slices.Clone(known)
	slices.Sort(sorted)

	return "choose from " + strings.Join(sorted, ", ")
}

// Nearest returns the known name that was probably meant; empty = none.
func Nearest(name string, known []string) string {
	lower := strings.ToLower(name)

	best, limit := "", max(len(name)/3, 1)+1
	for _, candidate := range known {
		if d := Distance(lower, strings.ToLower(candidate)); d < limit {
			best, limit = candidate, d
		}
	}

	if best != "" {
		return best
	}

	const longEnough = 4
	for _, candidate := range known {
		if len(name) >= longEnough && strings.HasPrefix(strings.ToLower(candidate), lower) {
			return candidate
		}
	}

	return ""
}

// Distance returns the number of letters to insert, delete, replace or swap with their neighbor to turn a into b.
func Distance(a, b string) int {
	previous, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}

	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1

		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}

			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], previous[j-1]+1)
			}
		}

		previous, last = last, row
	}

	return last[len(b)]
}
