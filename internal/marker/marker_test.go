package marker_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/marker"
)

func TestOwnerOf(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		description string
		owner       marker.Owner
	}{
		"a node": {
			marker.Node(marker.Of("acme", "talos-proxmox", "prod"), "Talos worker prod-general-1 of cluster prod"),
			"acme/talos-proxmox/prod",
		},
		"as Proxmox gives it back": {
			"talos-proxmox-node owner=organization/talos-proxmox/prod (Talos)\n", "organization/talos-proxmox/prod",
		},
		"a template": {
			"talos-proxmox-template owner=talos-proxmox/prod provenance=1 state=building (Talos)", "talos-proxmox/prod",
		},
		"a PCI mapping": {
			marker.Mapping(marker.Of("acme", "talos-proxmox", "prod")), "acme/talos-proxmox/prod",
		},
		"no description":               {"", ""},
		"a machine of an older form":   {"Talos worker prod-general-1 of cluster prod, made by talos-proxmox", ""},
		"a mention further on":         {"cloned from talos-proxmox-node owner=a/b/c", ""},
		"an owner that is not written": {"talos-proxmox-node owner= (Talos)", ""},
		"another second word":          {"talos-proxmox-node provenance=1 owner=a/b/c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner, ok := marker.OwnerOf(test.description)
			assert.Equal(t, test.owner, owner)
			assert.Equal(t, test.owner != "", ok)
		})
	}
}

func TestOwnerIs(t *testing.T) {
	t.Parallel()
	assert.True(t, marker.Owner("acme/talos-proxmox/prod").Is("talos-proxmox", "prod"))
	assert.True(t, marker.Owner("talos-proxmox/prod").Is("talos-proxmox", "prod"))
	assert.False(t, marker.Owner("acme/talos-proxmox/prod2").Is("talos-proxmox", "prod"))
	assert.False(t, marker.Owner("acme/my-talos-proxmox/prod").Is("talos-proxmox", "prod"))
	assert.False(t, marker.Owner("my-talos-proxmox/prod").Is("talos-proxmox", "prod"))
}
