package spec_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/spec"
)

// options returns the options of tests.
func options() spec.Options {
	return spec.Options{Stack: "test", CheckRoot: func() error {
		return errors.New("the stack logs in with a token")
	}, CheckRecipient: func(key string) error {
		if !strings.HasPrefix(key, "age1") {
			return errors.New("is not a public key; use one")
		}

		return nil
	}}
}

// values converts YAML to the form in which Pulumi passes it: JSON for each top-level key.
func values(t testing.TB, text string) map[string]string {
	t.Helper()

	var top map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &top))

	return valuesOf(t, top)
}

func valuesOf(t testing.TB, top map[string]any) map[string]string {
	t.Helper()

	result := map[string]string{}

	for key, value := range top {
		text, err := json.Marshal(value)
		require.NoError(t, err)

		result[key] = string(text)
	}

	return result
}

func readFile(t testing.TB, parts ...string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(parts...)) //nolint:gosec // test data
	require.NoError(t, err)

	return string(text)
}
