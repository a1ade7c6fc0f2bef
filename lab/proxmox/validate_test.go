package proxmox_test

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func checkParameters(given url.Values, p property) []string {
	doc := map[string]any{}

	for name, values := range given {
		switch of, _ := p.child(name); of.Type {
		case "array":
			list := []any{}
			for _, v := range values {
				list = append(list, v)
			}

			doc[name] = list
		case "boolean", "integer", "number":
			n, err := strconv.ParseFloat(values[0], 64)
			if err != nil {
				return []string{name + " is not a number: " + values[0]}
			}

			doc[name] = n
		default:
			doc[name] = values[0]
		}
	}

	p.Type = "object"

	return checkValue("parameters", doc, p)
}

// child finds a property by its name; "scsi[n]" is that of scsi0, too.
func (p property) child(name string) (property, bool) {
	if c, ok := p.Properties[name]; ok {
		return c, true
	}

	c, ok := p.Properties[strings.TrimRight(name, "0123456789")+"[n]"]

	return c, ok
}

// checkValue returns what is wrong with a JSON value by a JSON schema of Proxmox's kind.
func checkValue(path string, value any, p property) []string {
	switch p.Type {
	case "null":
		if value != nil {
			return []string{fmt.Sprintf("%s is %v, not null", path, value)}
		}
	case "object":
		return checkObject(path, value, p)
	case "array":
		list, ok := value.([]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %v, not a list", path, value)}
		}

		var wrong []string

		for i, v := range list {
			if p.Items != nil {
				wrong = append(wrong, checkValue(path+"["+strconv.Itoa(i)+"]", v, *p.Items)...)
			}
		}

		return wrong
	case "boolean", "integer", "number":
		return checkNumber(path, value, p)
	case "string":
		return checkText(path, value, p)
	}

	return nil
}

func checkObject(path string, value any, p property) []string {
	o, ok := value.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%s is %v, not an object", path, value)}
	}

	var wrong []string

	for name, c := range p.Properties {
		if _, ok := o[name]; !ok && !truth(c.Optional) && !strings.HasSuffix(name, "[n]") {
			wrong = append(wrong, path+"."+name+" is missing")
		}
	}

	for name, v := range o {
		if c, ok := p.child(name); ok {
			wrong = append(wrong, checkValue(path+"."+name, v, c)...)
		} else if p.AdditionalProps != nil && !truth(p.AdditionalProps) {
			wrong = append(wrong, path+"."+name+" is not in the schema")
		}
	}

	return wrong
}

func checkNumber(path string, value any, p property) []string {
	n, ok := value.(float64)

	switch {
	case !ok:
		return []string{fmt.Sprintf("%s is %#v, not of type %s", path, value, p.Type)}
	case p.Type == "boolean" && n != 0 && n != 1:
		return []string{fmt.Sprintf("%s is %v, not 0 or 1", path, n)}
	case p.Type == "integer" && n != math.Trunc(n):
		return []string{fmt.Sprintf("%s is %v, not an integer", path, n)}
	}

	if low, err := strconv.ParseFloat(bound(p.Minimum), 64); err == nil && n < low {
		return []string{fmt.Sprintf("%s is %v, less than %v", path, n, low)}
	}

	if high, err := strconv.ParseFloat(bound(p.Maximum), 64); err == nil && n > high {
		return []string{fmt.Sprintf("%s is %v, more than %v", path, n, high)}
	}

	return nil
}

// largeCount is a repetition that Go's expressions do not know.
var largeCount = regexp.MustCompile(`\{0,\d{4,}\}`)

func checkText(path string, value any, p property) []string {
	s, ok := value.(string)

	switch {
	case !ok:
		return []string{fmt.Sprintf("%s is %#v, not a string", path, value)}
	case p.MaxLength > 0 && len(s) > p.MaxLength:
		return []string{fmt.Sprintf("%s is longer than %d", path, p.MaxLength)}
	case p.Enum != nil && !slices.Contains(p.Enum, s):
		return []string{fmt.Sprintf("%s is %q, none of %v", path, s, p.Enum)}
	case p.Pattern != "" && !regexp.MustCompile("^(?:"+largeCount.ReplaceAllString(goPattern(p.Pattern), "*")+
		")$").MatchString(s):
		return []string{fmt.Sprintf("%s is %q, not like %s", path, s, p.Pattern)}
	}

	return nil
}
