package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
)

// tablePattern matches a type's table in the reference, between two comments.
var tablePattern = regexp.MustCompile(`(?s)(<!-- keys of (\w+), written by make schema -->\n).*?(<!-- end -->)`)

// fillTables returns the reference with the tables of keys from the schema. Every type needs its place.
func fillTables(reference []byte, schema *jsonschema.Schema) ([]byte, error) {
	definitions := maps.Clone(schema.Definitions)
	definitions["Config"], _ = schema.Properties.Get("config")

	missing := map[string]bool{}
	for name := range definitions {
		missing[name] = true
	}

	var unknown []string

	filled := tablePattern.ReplaceAllStringFunc(string(reference), func(match string) string {
		parts := tablePattern.FindStringSubmatch(match)

		definition, ok := definitions[parts[2]]
		if !ok {
			unknown = append(unknown, parts[2])

			return match
		}

		delete(missing, parts[2])

		return parts[1] + tableOf(definition) + parts[3]
	})

	for name := range missing {
		unknown = append(unknown, name)
	}

	if len(unknown) > 0 {
		slices.Sort(unknown)

		return nil, fmt.Errorf("%s and the configuration types differ in %s; give each type one table there: <!-- keys of %s, written by make schema -->, <!-- end -->",
			referencePath, strings.Join(unknown, ", "), unknown[0])
	}

	return []byte(filled), nil
}

func tableOf(definition *jsonschema.Schema) string {
	var text strings.Builder
	text.WriteString("| Key | Value | Default | Meaning |\n|---|---|---|---|\n")

	for pair := definition.Properties.Oldest(); pair != nil; pair = pair.Next() {
		fmt.Fprintf(
			&text, "| `%s` | %s | %s | %s |\n", pair.Key, valueOf(pair.Value), defaultOf(pair.Key, pair.Value, definition),
			strings.ReplaceAll(pair.Value.Description, "|", `\|`),
		)
	}

	return text.String()
}

// valueOf describes the values of a key.
func valueOf(s *jsonschema.Schema) string {
	switch {
	case s.Ref != "":
		return link(s.Ref)
	case len(s.AnyOf) > 0:
		return "text, or a secret"
	case len(s.Enum) > 0:
		choices := make([]string, len(s.Enum))
		for i, choice := range s.Enum {
			choices[i] = fmt.Sprintf("`%v`", choice)
		}

		return strings.Join(slices.Compact(choices), ", ") // a choice can also be listed as text
	case s.Type == "integer":
		return "number" + limits(s.Minimum, s.Maximum)
	case s.Type == "number":
		return "number with fractions" + limits(s.Minimum, s.Maximum)
	case s.Type == "boolean":
		return "true, false"
	case s.Type == "array":
		return "list: " + valueOf(s.Items)
	case s.Type == "object" && s.AdditionalProperties == nil:
		return "map"
	case s.Type == "object":
		return "map: " + valueOf(s.AdditionalProperties)
	default:
		return "text"
	}
}

func link(ref string) string {
	name := strings.TrimPrefix(ref, "#/$defs/")

	return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
}

func limits(minimum, maximum json.Number) string {
	switch {
	case minimum != "" && maximum != "":
		return fmt.Sprintf(", %s to %s", minimum, maximum)
	case minimum != "":
		return fmt.Sprintf(", from %s", minimum)
	default:
		return ""
	}
}

// defaultOf returns the default as written in a stack file; a computed default is part of the key's meaning.
func defaultOf(key string, s *jsonschema.Schema, definition *jsonschema.Schema) string {
	switch {
	case slices.Contains(definition.Required, key):
		return "**required**"
	case s.Default != nil:
		return fmt.Sprintf("`%v`", s.Default)
	case strings.Contains(s.Description, "Default: "):
		return "see there"
	default:
		return "–"
	}
}
