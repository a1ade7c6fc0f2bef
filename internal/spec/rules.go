package spec

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// rules are what a field's jsonschema tag says about a single value.
type rules struct {
	required         bool
	fallback         string // the default; empty = the zero value
	example          string
	enum             []string
	because          string // why there is no other choice: ", because …"
	minimum, maximum *int
	minItems         int
	secret           bool // kept secret where it is stored encrypted
}

// field is a key of a configuration type; keys of embedded types count as the type's own.
type field struct {
	key   string
	index []int
	rules rules
}

func fieldsOf(t reflect.Type) []field {
	var fields []field

	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}

			continue
		}

		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "-" {
			continue // no key of stack files
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
			r.fallback = value
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

// fill sets the defaults of what is not set in a struct and in the structs in it.
func fill(out reflect.Value) {
	for _, f := range fieldsOf(out.Type()) {
		value := out.FieldByIndex(f.index)

		switch kind := value.Kind(); { // the other kinds start empty
		case kind == reflect.Struct:
			fill(value)
		case !value.IsZero():
		case kind == reflect.String:
			value.SetString(f.rules.fallback)
		case kind == reflect.Int:
			number, _ := strconv.Atoi(f.rules.fallback)
			value.SetInt(int64(number))
		case kind == reflect.Bool:
			value.SetBool(f.rules.fallback == "true")
		}
	}
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}

	return keys
}

// Suggest returns the advice for a name that is none of the known ones: the nearest of them, or all.
func Suggest(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}

	sorted := slices.Clone(known)
	slices.Sort(sorted)

	return "choose from " + strings.Join(sorted, ", ")
}

// Nearest returns the known name that another one was probably meant to be; empty = none.
func Nearest(name string, known []string) string {
	lower := strings.ToLower(name)

	best, least := "", max(len(name)/3, 1)+1
	for _, candidate := range known {
		if d := Distance(lower, strings.ToLower(candidate)); d < least {
			best, least = candidate, d
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

// Distance is the number of letters to insert, remove, replace or swap with their neighbour to make b of a.
func Distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
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
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}

		before, last = last, row
	}

	return last[len(b)]
}
