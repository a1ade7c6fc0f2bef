package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/ownership"
)

func TestTemplateDescriptions(t *testing.T) {
	t.Parallel()

	of := func(id string) ownership.Template {
		return ownership.Template{
			Owner: ownership.Owner{Name: "talos-proxmox/prod", ID: id}, Provenance: "1f", State: ownership.Ready,
		}
	}

	const script = "talos-proxmox-template owner=talos-proxmox/prod provenance=1f state=ready id=9f86 (Talos v1.14.4 state=x)"

	assert.Equal(t, script, of("9f86").Description("Talos v1.14.4 state=x"), "as the build script writes it")

	for name, test := range map[string]struct {
		description string
		want        ownership.Template
		none        bool
	}{
		"a template": {description: script, want: of("9f86")},
		"a template of a former version": {
			description: "talos-proxmox-template owner=talos-proxmox/prod provenance=1f state=ready (Talos)", want: of(""),
		},
		"a template that is removed": {
			description: "talos-proxmox-template owner=talos-proxmox/prod state=removing id=9f86",
			want:        ownership.Template{Owner: of("9f86").Owner, State: ownership.Removing},
		},
		"a node": {
			description: ownership.Node(ownership.Of("acme", "talos-proxmox", "prod", "9f86"), "Talos worker"), none: true,
		},
		"no marker": {description: "mail server", none: true},
		"nothing":   {none: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got, ok := ownership.TemplateOf(test.description)
			assert.Equal(t, !test.none, ok)
			assert.Equal(t, test.want, got)
		})
	}
}
