package rules

import (
	"encoding/json"
	"testing"
	"text/template"

	"talos-proxmox/internal/goldentest"
)

// TestPage keeps docs/policies.md as the policies are.
func TestPage(t *testing.T) {
	t.Parallel()

	goldentest.Rendered(t, "../../docs/policies.md", "testdata/policies.md.tmpl", policies(), template.FuncMap{
		"json": func(value any) (string, error) {
			text, err := json.Marshal(value)

			return string(text), err
		},
	})
}
