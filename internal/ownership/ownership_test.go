package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/ownership"
)

func TestOwnerOf(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		description string
		owner       ownership.Owner
		none        bool
	}{
		"a node": {
			description: ownership.Node(
				ownership.Of("acme", "talos-proxmox", "prod", "9f86"), "Talos worker prod-general-1 of cluster prod",
			),
			owner: ownership.Owner{Name: "acme/talos-proxmox/prod", ID: "9f86"},
		},
		"a node of a former version": {
			description: ownership.Node(ownership.Of("acme", "talos-proxmox", "prod", ""), "Talos worker id=1 of cluster prod"),
			owner:       ownership.Owner{Name: "acme/talos-proxmox/prod"},
		},
		"as Proxmox gives it back": {
			description: "talos-proxmox-node owner=organization/talos-proxmox/prod id=9f86 (Talos)\n",
			owner:       ownership.Owner{Name: "organization/talos-proxmox/prod", ID: "9f86"},
		},
		"a template": {
			description: "talos-proxmox-template owner=talos-proxmox/prod provenance=1 state=building id=9f86 (Talos)",
			owner:       ownership.Owner{Name: "talos-proxmox/prod", ID: "9f86"},
		},
		"a PCI mapping": {
			description: ownership.Mapping(ownership.Of("acme", "talos-proxmox", "prod", "9f86")),
			owner:       ownership.Owner{Name: "acme/talos-proxmox/prod", ID: "9f86"},
		},
		"no description": {none: true},
		"a machine of an older form": {
			description: "Talos worker prod-general-1 of cluster prod, made by talos-proxmox", none: true,
		},
		"a mention further on":         {description: "cloned from talos-proxmox-node owner=a/b/c", none: true},
		"an owner that is not written": {description: "talos-proxmox-node owner= (Talos)", none: true},
		"another second word":          {description: "talos-proxmox-node provenance=1 owner=a/b/c", none: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner, ok := ownership.OwnerOf(test.description)
			assert.Equal(t, test.owner, owner)
			assert.Equal(t, test.none, !ok)
		})
	}
}

// TestOwnerIs: the id decides, independent of backend and organization; without an id, the names do.
func TestOwnerIs(t *testing.T) {
	t.Parallel()

	stack := ownership.Of("acme", "talos-proxmox", "prod", "9f86")

	for name, test := range map[string]struct {
		owner        ownership.Owner
		is, namesake bool
	}{
		"the same":                      {ownership.Of("acme", "talos-proxmox", "prod", "9f86"), true, true},
		"of a renamed organization":     {ownership.Of("b", "talos-proxmox", "prod", "9f86"), true, true},
		"of another backend":            {ownership.Of("acme", "talos-proxmox", "prod", "1d2c"), false, true},
		"without an id":                 {ownership.Of("acme", "talos-proxmox", "prod", ""), true, true},
		"a template without an id":      {ownership.Owner{Name: "talos-proxmox/prod"}, true, true},
		"a template of another backend": {ownership.Owner{Name: "talos-proxmox/prod", ID: "1d2c"}, false, true},
		"another stack":                 {ownership.Owner{Name: "acme/talos-proxmox/prod2"}, false, false},
		"another project":               {ownership.Owner{Name: "acme/my-talos-proxmox/prod"}, false, false},
		"another project's template":    {ownership.Owner{Name: "my-talos-proxmox/prod"}, false, false},
		"nobody":                        {ownership.Owner{}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.is, test.owner.Matches(stack))
			assert.Equal(t, test.namesake, test.owner.IsNamesake(stack))
		})
	}

	withoutID := ownership.Of("acme", "talos-proxmox", "prod", "")
	assert.True(t, withoutID.IsLost(stack, true))
	assert.False(t, withoutID.IsLost(stack, false))
	assert.False(t, stack.IsLost(stack, true), "its first run created it")
	assert.True(t, ownership.Of("acme", "talos-proxmox", "prod", "1d2c").IsLost(stack, false))

	assert.False(t, stack.Matches(ownership.Of("acme", "talos-proxmox", "prod", "")), "a state without an id is another one")
}

func TestAbout(t *testing.T) {
	t.Parallel()

	about := ownership.NodeAbout("worker", "prod-general-1", "prod")
	for _, id := range []string{"", "9f86"} {
		assert.Equal(t, about, ownership.About(ownership.Node(ownership.Of("acme", "talos-proxmox", "prod", id), about)+"\n"))
	}

	assert.Empty(t, ownership.About("somebody's (Talos worker)"))
	assert.Empty(t, ownership.About(ownership.Mapping(ownership.Owner{Name: "a"})+" more"))
}
