// Package schema is what Proxmox VE 9 accepts as parameters: a rule for each, in one line, and PVE's own words for what
// breaks one.
package schema

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The types of parameters, by PVE's names.
const (
	Boolean = "boolean"
	Integer = "integer"
	Number  = "number"
	String  = "string"
	Array   = "array"
)

// Rule is what a parameter, or a part of a property string, must be.
type Rule struct {
	Type      string
	Enum      []string
	Min, Max  *float64
	MinLength int
	MaxLength int
	// Pattern is matched against the whole value.
	Pattern string
	// Format is the name of one of PVE's formats, or of a property string in braces: "{net}".
	Format string
	// Requires is the parameter without which this one means nothing.
	Requires string
	// Required, Default, Alias and KeyAlias are of parts of property strings: a part that must be there, one that may go
	// without its key, and one that is written for another part, its own key being the value of a third: "virtio=MAC" is
	// "model=virtio,macaddr=MAC".
	Required, Default bool
	Alias, KeyAlias   string

	pattern *regexp.Regexp
}

// parse reads the notation: the type (string if none is set), then any of
//
//	1..10  1..   the range            =a,b   the enumeration     ~regex  the pattern
//	>=8  <=40    the lengths          @name  the format          {name}  a property string
//	+name        the requirement      *      required            !       the default key       ->key/model  the alias
func parse(text string) (Rule, error) {
	r := Rule{Type: String}

	for word := range strings.FieldsSeq(text) {
		switch rest := word[1:]; {
		case types[word] != "":
			r.Type = types[word]
		case strings.HasPrefix(word, "<="), strings.HasPrefix(word, ">="):
			n, err := strconv.Atoi(word[2:])
			if err != nil {
				return r, fmt.Errorf("length %q: %w", word, err)
			}

			if word[0] == '<' {
				r.MaxLength = n
			} else {
				r.MinLength = n
			}
		case strings.HasPrefix(word, "->"):
			r.Alias, r.KeyAlias, _ = strings.Cut(word[2:], "/")
		case word[0] == '=':
			r.Enum = enumeration(rest)
		case word[0] == '~':
			re, err := regexp.Compile("^(?:" + largeCount.ReplaceAllString(rest, "*") + ")$")
			if err != nil {
				return r, fmt.Errorf("pattern %q: %w", rest, err)
			}

			r.Pattern, r.pattern = rest, re
		case word[0] == '@':
			r.Format = rest
		case word[0] == '{':
			r.Format = word
		case word[0] == '+':
			r.Requires = rest
		case word == "*":
			r.Required = true
		case word == "!":
			r.Default = true
		default:
			if err := r.parseRange(word); err != nil {
				return r, err
			}
		}
	}

	return r, nil
}

var types = map[string]string{"bool": Boolean, "int": Integer, "number": Number, "string": String, "list": Array}

// largeCount is what Go's expressions cannot count.
var largeCount = regexp.MustCompile(`\{0,\d{4,}\}`)

func (r *Rule) parseRange(word string) error {
	low, high, ok := strings.Cut(word, "..")
	if !ok {
		return fmt.Errorf("%q says nothing about a parameter", word)
	}

	for text, to := range map[string]**float64{low: &r.Min, high: &r.Max} {
		if text == "" {
			continue
		}

		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("range %q: %w", word, err)
		}

		*to = &n
	}

	return nil
}

// enumeration reads values; "drives" and "disks" are the slots of disks, the second with the unused ones.
func enumeration(text string) []string {
	switch text {
	case "drives":
		return slots()
	case "disks":
		return slots(slot{"unused", 256})
	}

	return strings.Split(text, ",")
}

type slot struct {
	name  string
	count int
}

func slots(more ...slot) []string {
	var list []string

	for _, s := range append(
		[]slot{{"ide", 4}, {"scsi", 31}, {"virtio", 16}, {"sata", 6}, {"efidisk", 1}, {"tpmstate", 1}}, more...,
	) {
		for n := range s.count {
			list = append(list, s.name+strconv.Itoa(n))
		}
	}

	return list
}

// mustParse reads a table of the program itself; a key may be several names.
func mustParse(table map[string]string) map[string]Rule {
	rules := map[string]Rule{}

	for names, text := range table {
		for name := range strings.FieldsSeq(names) {
			rules[name] = mustRule(name, text)
		}
	}

	return rules
}

func mustRule(name, text string) Rule {
	r, err := parse(text)
	if err != nil {
		panic(name + ": " + err.Error())
	}

	return r
}
