package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// TestExamplesInDocuments holds parts of stack files in documents against the schema: keys and kinds of values. A part
// is a whole file, or fields of a type of the configuration; documents leave out what they are not about.
func TestExamplesInDocuments(t *testing.T) {
	t.Parallel()

	schema, err := stackSchema(root)
	require.NoError(t, err)
	encoded, err := encode(schema)
	require.NoError(t, err)

	var parts map[string]any
	require.NoError(t, json.Unmarshal(encoded, &parts))

	definitions := withoutRequirements(parts).(map[string]any)["$defs"].(map[string]any)
	definitions["StackFile"] = map[string]any{"properties": parts["properties"], "type": "object"}
	definitions["Config"] = map[string]any{
		"type": "object", "properties": namespaced(parts["properties"].(map[string]any)["config"].(map[string]any)),
	}

	files, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)

	checked := 0

	for _, file := range append(files, root+"/README.md", root+"/examples/README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)

		for _, block := range regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$").FindAllStringSubmatch(string(text), -1) {
			var example map[string]any
			if yaml.Unmarshal([]byte(block[2]), &example) != nil || example == nil { // of several documents, or cut off
				continue
			}

			problems, known := validateExample(t, definitions, withoutEllipses(example).(map[string]any))
			if known {
				checked++
			}

			assert.Empty(t, problems, "%s:\n%s", file, block[2])
		}
	}

	assert.Greater(t, checked, 25)
}

// validateExample validates an example as the type that has all of its keys; known is false if none has.
func validateExample(t *testing.T, definitions map[string]any, example map[string]any) (problems []string, known bool) {
	t.Helper()

	for name, definition := range definitions {
		properties, _ := definition.(map[string]any)["properties"].(map[string]any)

		hasAll := true
		for key := range example {
			hasAll = hasAll && properties[key] != nil
		}

		if !hasAll {
			continue
		}

		known = true

		schema, err := json.Marshal(map[string]any{"$defs": definitions, "$ref": "#/$defs/" + name})
		require.NoError(t, err)
		compiled, err := validator.CompileString(name+".json", string(schema))
		require.NoError(t, err)

		err = compiled.Validate(example)
		if err == nil {
			return nil, true
		}

		problems = append(problems, fmt.Sprintf("%s: %#v", name, err))
	}

	return problems, known
}

// namespaced returns the properties of the configuration under their keys in documents, without the namespace.
func namespaced(config map[string]any) map[string]any {
	properties := map[string]any{}

	for key, property := range config["properties"].(map[string]any) {
		if name, ok := strings.CutPrefix(key, "talos-proxmox:"); ok {
			properties[name] = property
		}
	}

	return properties
}

// withoutRequirements returns a schema that a part of what it describes meets.
func withoutRequirements(schema any) any {
	switch of := schema.(type) {
	case map[string]any:
		if _, isList := of["required"].([]any); isList {
			delete(of, "required")
		}

		delete(of, "minItems")

		for key, value := range of {
			of[key] = withoutRequirements(value)
		}
	case []any:
		for i := range of {
			of[i] = withoutRequirements(of[i])
		}
	}

	return schema
}

// withoutEllipses removes what documents write for more of the same.
func withoutEllipses(value any) any {
	isEllipsis := func(v any) bool { return strings.Contains(fmt.Sprint(v), "…") }

	switch of := value.(type) {
	case map[string]any:
		for key, inner := range of {
			if isScalar(inner) && isEllipsis(inner) || isEllipsis(key) {
				delete(of, key)
			} else {
				of[key] = withoutEllipses(inner)
			}
		}
	case []any:
		of = slices.DeleteFunc(of, func(v any) bool { return isScalar(v) && isEllipsis(v) })
		for i := range of {
			of[i] = withoutEllipses(of[i])
		}

		return of
	}

	return value
}

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	default:
		return true
	}
}
