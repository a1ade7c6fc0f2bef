package proxmox_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/proxmox"
	"talos-proxmox/lab/schema"
)

// property is a node of a JSON schema as Proxmox VE writes them.
type property struct {
	Type            any                 `json:"type"`
	Enum            []string            `json:"enum"`
	Minimum         any                 `json:"minimum"`
	Maximum         any                 `json:"maximum"`
	MaxLength       int                 `json:"maxLength"`
	MinLength       int                 `json:"minLength"`
	Pattern         string              `json:"pattern"`
	Format          any                 `json:"format"`
	Requires        any                 `json:"requires"`
	Optional        any                 `json:"optional"`
	Alias           string              `json:"alias"`
	KeyAlias        string              `json:"keyAlias"`
	DefaultKey      int                 `json:"default_key"`
	Properties      map[string]property `json:"properties"`
	AdditionalProps any                 `json:"additionalProperties"`
	Items           *property           `json:"items"`
}

type method struct {
	Parameters property `json:"parameters"`
	Returns    property `json:"returns"`
}

// description reads Proxmox's own description of its API: every method by "METHOD /path/{template}".
func description(t *testing.T) map[string]method {
	t.Helper()

	path := os.Getenv("PVE_API_SCHEMA")
	if path == "" {
		t.Skip("skipped: PVE_API_SCHEMA is not set. Nothing is compared with Proxmox's own API description, which is not part of this repository; " +
			"set the variable to the path of its apidata.json")
	}

	raw, err := os.ReadFile(path) //nolint:gosec // the file that the caller names
	require.NoError(t, err)

	type node struct {
		Path     string            `json:"path"`
		Info     map[string]method `json:"info"`
		Children json.RawMessage   `json:"children"`
	}

	all := map[string]method{}

	var walk func(raw json.RawMessage)

	walk = func(raw json.RawMessage) {
		var nodes []node

		require.NoError(t, json.Unmarshal(raw, &nodes))

		for _, n := range nodes {
			for name, m := range n.Info {
				all[name+" "+n.Path] = m
			}

			if len(n.Children) > 0 {
				walk(n.Children)
			}
		}
	}
	walk(raw)
	require.Greater(t, len(all), 600)

	return all
}

// TestParametersAreProxmoxs compares the rules of every implemented method with Proxmox's description.
func TestParametersAreProxmoxs(t *testing.T) {
	t.Parallel()

	api := description(t)

	for _, m := range proxmox.Methods() {
		call := m.Method + " " + m.Path

		t.Run(call, func(t *testing.T) {
			t.Parallel()

			theirs, ok := api[call]
			require.True(t, ok, "Proxmox has no such method")

			for name, p := range theirs.Parameters.Properties {
				ours, ok := m.Parameters[name]
				if strings.Contains(m.Path, "{"+name+"}") { // What is in the path is there, even if it might be left out elsewhere.
					p.Optional = nil
				}

				if assert.True(t, ok, "%s is missing", name) {
					compare(t, name, p, ours)
				}
			}

			for name := range m.Parameters {
				assert.Contains(t, theirs.Parameters.Properties, name, "Proxmox has no such parameter")
			}
		})
	}
}

func compare(t *testing.T, name string, theirs property, ours schema.Rule) {
	t.Helper()

	if theirs.Alias != "" {
		assert.Equal(t, theirs.Alias+"/"+theirs.KeyAlias, ours.Alias+"/"+ours.KeyAlias, "alias of %s", name)

		return
	}

	assert.Equal(t, theirs.Type, ours.Type, "type of %s", name)
	assert.Equal(t, truth(theirs.Optional), !ours.Required, "whether %s is optional", name)
	assert.Equal(t, bound(theirs.Minimum), limit(ours.Min), "minimum of %s", name)
	assert.Equal(t, bound(theirs.Maximum), limit(ours.Max), "maximum of %s", name)
	assert.Equal(t, theirs.MaxLength, ours.MaxLength, "length of %s", name)
	assert.Equal(t, theirs.MinLength, ours.MinLength, "the least length of %s", name)
	assert.Equal(t, goPattern(theirs.Pattern), ours.Pattern, "pattern of %s", name)
	assert.Equal(t, theirs.DefaultKey == 1, ours.Default, "whether %s is the default key", name)

	// The description states no enumeration for what a plugin of the host adds to.
	if theirs.Enum != nil {
		assert.Equal(t, theirs.Enum, ours.Enum, "enumeration of %s", name)
	}

	if requires, ok := theirs.Requires.(string); ok {
		assert.Equal(t, requires, ours.Requires, "what %s requires", name)
	}

	format := theirs.Format
	if theirs.Items != nil {
		format = theirs.Items.Format
	}

	compareFormat(t, name, format, ours.Format)
}

func compareFormat(t *testing.T, name string, theirs any, ours string) {
	t.Helper()

	parts, isProperties := theirs.(map[string]any)
	if !isProperties {
		if theirs == nil {
			theirs = ""
		}

		assert.Equal(t, theirs, ours, "format of %s", name)
		assert.True(t,
			ours == "" || schema.Properties(ours) != nil || slices.Contains(
				schema.Formats(), strings.TrimSuffix(strings.TrimSuffix(ours, "-list"), "-opt"),
			),
			"nothing checks the format %s of %s", ours, name)

		return
	}

	b, err := json.Marshal(parts)
	require.NoError(t, err)

	var all map[string]property

	require.NoError(t, json.Unmarshal(b, &all))

	rules := schema.Properties(ours)
	assert.Len(t, rules, len(all), "parts of %s", name)

	for key, p := range all {
		if rule, ok := rules[key]; assert.True(t, ok, "%s.%s is missing", name, key) {
			// A part's format that the description states in words only may go unchecked here.
			compare(t, name+"."+key, p, rule)
		}
	}
}

func truth(v any) bool { return v != nil && fmt.Sprint(v) != "0" }

// bound reads a number that is now and then written as a string.
func bound(v any) string {
	if v == nil {
		return ""
	}

	n, err := strconv.ParseFloat(fmt.Sprint(v), 64)
	if err != nil {
		return err.Error()
	}

	return limit(&n)
}

func limit(n *float64) string {
	if n == nil {
		return ""
	}

	return strconv.FormatFloat(*n, 'f', -1, 64)
}

// goPattern writes Perl's regular expressions in Go's way.
func goPattern(perl string) string {
	return strings.NewReplacer("(?^:", "(?:", "{,", "{0,").Replace(perl)
}
