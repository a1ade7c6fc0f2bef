package rules

import (
	"encoding/json"
	"testing"
	"text/template"

	"talos-proxmox/internal/goldentest"
)

// TestPoliciesPage keeps docs/policies.md up to date.
func TestPoliciesPage(t *testing.T) {
	t.Parallel()

	goldentest.Rendered(t, "../../docs/policies.md", "testdata/policies.md.tmpl", policies(), template.FuncMap{
		"json": func(value any) (string, error) {
			text, err := json.Marshal(value)

			return string(text), err
		},
	})
}
