package proxmox_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/proxmox"
)

var update = flag.Bool("update", false, "write the part of Proxmox' API description that the lab reads")

// keptAttributes are the attributes that decide about a parameter's value; the rest is documentation.
var keptAttributes = strings.Fields(
	"type enum minimum maximum minLength maxLength pattern format requires optional alias keyAlias default_key items",
)

// rule reduces a parameter of the description: numbers and flags have one form, and the parts of a property string are
// properties.
func rule(t *testing.T, p map[string]any) map[string]any {
	t.Helper()

	out := map[string]any{}

	for _, key := range keptAttributes {
		value, ok := p[key]
		if !ok {
			continue
		}

		switch key {
		case "minimum", "maximum": // some are strings
			n, err := strconv.ParseFloat(fmt.Sprint(value), 64)
			require.NoError(t, err)

			value = n
		case "optional", "default_key":
			if value = fmt.Sprint(value) != "0"; value == false {
				continue
			}
		case "pattern":
			value = goPattern(fmt.Sprint(value))
		case "items":
			items, _ := value.(map[string]any)
			value = rule(t, items)
		case "format":
			if parts, ok := value.(map[string]any); ok {
				key, value = "properties", rules(t, parts)
			}
		}

		out[key] = value
	}

	return out
}

// largeCount matches a repetition count that Go's regular expressions do not support.
var largeCount = regexp.MustCompile(`\{0,\d{4,}\}`)

// goPattern converts a Perl regular expression to Go's syntax.
func goPattern(perl string) string {
	return largeCount.ReplaceAllString(strings.NewReplacer("(?^:", "(?:", "{,", "{0,").Replace(perl), "*")
}

func rules(t *testing.T, list map[string]any) map[string]any {
	t.Helper()

	out := map[string]any{}

	for name, p := range list {
		p, ok := p.(map[string]any)
		require.True(t, ok)

		out[name] = rule(t, p)
	}

	return out
}

// parseMethods returns the description's methods by "METHOD /path/{template}", as far as the lab reads them.
func parseMethods(t *testing.T, raw []byte) map[string]map[string]any {
	t.Helper()

	type method struct {
		AllowToken  int                                 `json:"allowtoken"`
		Parameters  struct{ Properties map[string]any } `json:"parameters"`
		Permissions map[string]any                      `json:"permissions"`
	}

	type node struct {
		Path     string
		Info     map[string]method
		Children json.RawMessage
	}

	all := map[string]map[string]any{}

	var walk func(raw json.RawMessage)

	walk = func(raw json.RawMessage) {
		var nodes []node

		require.NoError(t, json.Unmarshal(raw, &nodes))

		for _, n := range nodes {
			for name, m := range n.Info {
				delete(m.Permissions, "description")

				out := map[string]any{"allowtoken": m.AllowToken == 1, "permissions": m.Permissions}
				if len(m.Parameters.Properties) > 0 {
					out["parameters"] = rules(t, m.Parameters.Properties)
				}

				all[name+" "+n.Path] = out
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

// extractConfig moves the keys of a VM's configuration out of the calls that accept all of them.
func extractConfig(methods map[string]map[string]any) map[string]any {
	const vm = "/nodes/{node}/qemu"

	config := map[string]any{}
	calls := []string{"POST " + vm, "PUT " + vm + "/{vmid}/config", "POST " + vm + "/{vmid}/config"}
	parameters := func(call string) map[string]any { return methods[call]["parameters"].(map[string]any) }

	for name, p := range parameters(calls[0]) {
		if name != "node" && name != "vmid" && reflect.DeepEqual(p, parameters(calls[1])[name]) {
			config[name] = p
		}
	}

	for _, call := range calls {
		methods[call]["config"] = true

		maps.DeleteFunc(parameters(call), func(name string, _ any) bool { return config[name] != nil })
	}

	return config
}

// TestAPISchemaIsCurrent compares what the lab reads with Proxmox' API description, which is not part of this
// repository; -update writes it.
func TestAPISchemaIsCurrent(t *testing.T) {
	t.Parallel()

	path := os.Getenv("PVE_API_SCHEMA")
	if path == "" {
		t.Skip("skipped: PVE_API_SCHEMA is not set. To compare with Proxmox' API description, set the variable to the path of its " +
			"apidata.json")
	}

	raw, err := os.ReadFile(path) //nolint:gosec // the caller's file
	require.NoError(t, err)

	methods := parseMethods(t, raw)
	config := extractConfig(methods)
	calls := proxmox.Methods()

	for _, call := range calls {
		assert.Contains(t, methods, call, "Proxmox has no such method")
	}

	maps.DeleteFunc(methods, func(call string, _ map[string]any) bool { return !slices.Contains(calls, call) })

	var out bytes.Buffer

	out.WriteString("{\n")
	writeLines(t, &out, "config", config)
	out.WriteString(",\n")
	writeLines(t, &out, "methods", methods)
	out.WriteString("\n}\n")

	if *update {
		require.NoError(t, os.WriteFile("../schema/api.json", out.Bytes(), 0o644)) //nolint:gosec // a public file
	} else {
		has, err := os.ReadFile("../schema/api.json")
		require.NoError(t, err)
		assert.Equal(t, out.String(), string(has))
	}
}

// writeLines writes an object with one member per line.
func writeLines[T any](t *testing.T, out *bytes.Buffer, name string, members map[string]T) {
	t.Helper()
	fmt.Fprintf(out, "%q: {", name)

	for i, key := range slices.Sorted(maps.Keys(members)) {
		var line bytes.Buffer

		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		require.NoError(t, encoder.Encode(members[key]))

		fmt.Fprintf(out, "%s\n%q: %s", map[bool]string{true: ","}[i > 0], key, strings.TrimSpace(line.String()))
	}

	out.WriteString("\n}")
}
