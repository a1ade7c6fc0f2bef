package schema

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	integer = regexp.MustCompile(`^[+-]?\d+$`)
	number  = regexp.MustCompile(`^[+-]?(\d+\.\d+|\d+\.|\.\d+|\d+)([eE][+-]?\d+)?$`)
)

// PVE's messages for unknown and for missing parameters.
const (
	Undefined = "property is not defined in schema and the schema does not allow additional properties"
	Missing   = "property is missing and it is not optional"
)

// Needs is PVE's message for a missing parameter that the named one requires.
func Needs(name string) string { return "missing property required by '" + name + "'" }

// Check returns PVE's messages for a parameter's values by the names that PVE reports: elements of a list have names of
// their own. Several values are a list.
func (r Rule) Check(name string, values []string) map[string]string {
	problems := map[string]string{}
	complain := func(name, complaint string) {
		if complaint != "" {
			problems[name] = complaint
		}
	}

	switch {
	case r.Type == Array:
		for i, v := range values {
			element := name + "[" + strconv.Itoa(i) + "]"
			complain(element, r.Items.check(element, v))
		}
	case len(values) != 1 && !strings.HasSuffix(r.Format, "-list"):
		complain(name, "type check ('"+r.Type+"') failed - got ARRAY")
	default:
		complain(name, r.check(name, strings.Join(values, ",")))
	}

	return problems
}

func (r Rule) check(name, value string) string {
	if !r.hasType(value) {
		return "type check ('" + r.Type + "') failed - got '" + value + "'"
	}

	if complaint := r.checkFormat(name, value); complaint != "" {
		return "invalid format - " + complaint
	}

	n, err := strconv.ParseFloat(value, 64)

	switch {
	case r.Pattern != nil && !r.Pattern.MatchString(value):
		return "value does not match the regex pattern"
	case r.MaxLength > 0 && len(value) > r.MaxLength:
		return "value may only be " + strconv.Itoa(r.MaxLength) + " characters long"
	case len(value) < r.MinLength:
		return "value must be at least " + strconv.Itoa(r.MinLength) + " characters long"
	case r.Maximum != nil && err == nil && n > *r.Maximum:
		return "value must have a maximum value of " + strconv.FormatFloat(*r.Maximum, 'f', -1, 64)
	case r.Minimum != nil && err == nil && n < *r.Minimum:
		return "value must have a minimum value of " + strconv.FormatFloat(*r.Minimum, 'f', -1, 64)
	case r.Enum != nil && !slices.Contains(r.Enum, value):
		return "value '" + value + "' does not have a value in the enumeration '" + strings.Join(r.Enum, ", ") + "'"
	}

	return ""
}

// hasType accepts only 0 and 1 as booleans. "on" and "true" are valid only in property strings and on PVE's command
// line.
func (r Rule) hasType(value string) bool {
	switch r.Type {
	case Boolean:
		return value == "0" || value == "1"
	case Integer:
		return integer.MatchString(value)
	case Number:
		return number.MatchString(value)
	default:
		return true
	}
}

func (r Rule) checkFormat(name, value string) string {
	if parts := r.subRules(); parts != nil {
		if complaint := checkProperties(parts, name, value); complaint != "" || r.Format != cpuFormat {
			return complaint
		}

		return checkCPUModel(value)
	}

	single, isList := strings.CutSuffix(r.Format, "-list")
	single, isOptional := strings.CutSuffix(single, "-opt")

	if isOptional && value == "" {
		return ""
	}

	list := []string{value}
	if isList {
		list = SplitList(value)
	}

	for _, v := range list {
		if fits := addressFormats[single]; fits != nil && fits(v) {
			continue
		}

		if complaint := valueFormats[single].check(v); complaint != "" {
			return complaint + "\n"
		}
	}

	return ""
}

// subRules returns the rules of a property string's parts, or nil. The description has two names for IDE disks.
func (r Rule) subRules() map[string]Rule {
	switch {
	case r.Properties != nil:
		return r.Properties
	case r.Format == "pve-qm-ide":
		return api.Config["ide[n]"].Properties
	default:
		return propertyFormats[r.Format]
	}
}

// SplitList splits a list with any of PVE's separators.
func SplitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",; \t\n\x00", r) })
}

// NormalizeBool returns a boolean as 0 or 1; PVE's command line and property strings have more spellings.
func NormalizeBool(text string) string {
	switch strings.ToLower(text) {
	case "on", "yes", "true":
		return "1"
	case "off", "no", "false":
		return "0"
	default:
		return text
	}
}

// checkProperties validates a property string such as "virtio,bridge=vmbr0".
func checkProperties(format map[string]Rule, path, text string) string {
	found, complaint := splitProperties(format, text)
	if complaint != "" {
		return complaint + "\n"
	}

	var problems []string

	for _, key := range slices.Sorted(maps.Keys(found)) {
		if _, ok := format[key]; !ok {
			problems = append(problems, path+"."+key+": "+Undefined)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(format)) {
		rule := format[key]

		value, ok := found[key]
		if !ok {
			if !rule.Optional && rule.Alias == "" {
				problems = append(problems, path+"."+key+": "+Missing)
			}

			continue
		}

		if _, ok := found[rule.Requires]; rule.Requires != "" && !ok {
			problems = append(problems, path+"."+rule.Requires+": "+Needs(path+"."+key))
		}

		if rule.Type == Boolean {
			value = NormalizeBool(value)
		}

		if c := rule.check(path+"."+key, value); c != "" {
			problems = append(problems, path+"."+key+": "+c)
		}
	}

	if len(problems) > 0 {
		return "format error\n" + strings.Join(problems, "\n") + "\n"
	}

	return ""
}

// Properties parses the value of a configuration key by the names of its parts. A value that is not a property string
// has none.
func Properties(key, value string) map[string]string {
	rule, _ := Config(key)

	found, complaint := splitProperties(rule.subRules(), value)
	if complaint != "" {
		return map[string]string{}
	}

	return found
}

// DefaultProperty returns the name of the part whose name can be omitted, or "".
func DefaultProperty(key string) string {
	rule, _ := Config(key)

	return defaultKeyOf(rule.subRules())
}

func splitProperties(format map[string]Rule, text string) (found map[string]string, complaint string) {
	found = map[string]string{}

	for part := range strings.SplitSeq(text, ",") {
		key, value, hasKey := strings.Cut(part, "=")

		switch {
		case strings.TrimSpace(part) == "":
			continue
		case !hasKey:
			value = part

			if key = defaultKeyOf(format); key == "" {
				return nil, "value without key, but schema does not define a default key"
			}
		case key == "" || value == "":
			return nil, "missing key in comma-separated list property"
		}

		rule := format[key]
		if rule.KeyAlias != "" {
			if _, ok := found[rule.KeyAlias]; ok {
				return nil, "key alias '" + rule.KeyAlias + "' is already defined"
			}

			found[rule.KeyAlias] = key
		}

		if rule.Alias != "" {
			key = rule.Alias
		}

		if _, ok := found[key]; ok {
			return nil, "duplicate key in comma-separated list property: " + key
		}

		found[key] = value
	}

	return found, ""
}

func defaultKeyOf(format map[string]Rule) string {
	for k, r := range format {
		if r.DefaultKey {
			return k
		}
	}

	return ""
}
