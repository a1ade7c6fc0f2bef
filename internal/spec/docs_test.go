package spec_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/spec"
)

// block returns the first code block of a language in the configuration reference with a prefix.
func block(t *testing.T, language, begin string) string {
	t.Helper()

	for _, match := range regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```").FindAllStringSubmatch(
		readFile(t, "..", "..", "docs", "configuration.md"), -1,
	) {
		if match[1] == language && strings.HasPrefix(match[2], begin) {
			return match[2]
		}
	}

	t.Fatalf("no block of %q that begins with %q", language, begin)

	return ""
}

func TestExampleOfTheReference(t *testing.T) {
	t.Parallel()

	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFUaf6c1yrZLI0gRkiJEOzOQ6I7cRh8BiZsXR0tSHoQ3"

	var stack struct {
		Config map[string]any `yaml:"config"`
	}

	text := strings.ReplaceAll(block(t, "yaml", "config:"), "ssh-ed25519 AAAA…", key)
	require.NoError(t, yaml.Unmarshal([]byte(text), &stack))

	config := map[string]any{}

	for key, value := range stack.Config {
		if key, ok := strings.CutPrefix(key, "talos-proxmox:"); ok {
			config[key] = value
		}
	}

	plan, err := spec.Load(valuesOf(t, config), options())
	require.NoError(t, err)
	assert.Empty(t, plan.Warnings)

	var machines, templates []string
	for _, n := range plan.Clusters[0].Nodes() {
		machines = append(machines, fmt.Sprint(n.Name, " ", n.VMID, " ", n.Address.Addr()))
	}

	for _, template := range plan.Templates {
		templates = append(templates, fmt.Sprint(template.Key, " ", template.VMID))
	}

	assert.Equal(t, []string{
		"prod-cp-1 2000 10.0.1.10", "prod-cp-2 2001 10.0.1.11", "prod-cp-3 2002 10.0.1.12",
		"prod-general-1 3000 10.0.1.20", "prod-general-2 3001 10.0.1.21",
		"prod-storage-1 3100 10.0.1.60", "prod-storage-2 3101 10.0.1.61", "prod-storage-3 3102 10.0.1.62",
	}, machines)
	assert.Equal(
		t, []string{"talos 901", "talos 902", "talos 903", "storage 951", "storage 952", "storage 953"}, templates,
	)
}

func TestErrorsInTheReferenceAreReal(t *testing.T) {
	t.Parallel()

	real := map[string]bool{}
	files, err := filepath.Glob("testdata/invalid/*.yaml")
	require.NoError(t, err)

	for _, file := range files {
		cases := map[string]invalidCase{}
		require.NoError(t, yaml.Unmarshal([]byte(readFile(t, file)), &cases))

		for _, c := range cases {
			for _, line := range c.Want {
				real[line] = true
			}
		}
	}

	for line := range strings.SplitSeq(strings.TrimSpace(block(t, "", "clusters[0]")), "\n") {
		assert.True(t, real[line], line)
	}
}
