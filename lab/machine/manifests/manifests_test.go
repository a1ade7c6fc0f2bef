package manifests_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/lab/machine/manifests"
)

// console is a control plane whose configuration has one list of manifests after another.
type console struct {
	lists   [][]manifests.Manifest
	refuse  map[string]bool
	created []string
	applied []string
	lines   []string
	slept   time.Duration
}

func (c *console) Await(_ context.Context, wanted func([]manifests.Manifest) bool) bool {
	for len(c.lists) > 0 {
		next := c.lists[0]
		c.lists = c.lists[1:]

		if wanted(next) {
			return true
		}
	}

	return false
}

func (c *console) Create(_ context.Context, content map[string]any) error {
	kind := fmt.Sprint(content["kind"])
	if c.refuse[kind] {
		delete(c.refuse, kind)

		return errors.New("no matches for kind " + kind)
	}

	c.created = append(c.created, kind)

	return nil
}

func (c *console) Applied(ids []string) { c.applied = ids }

func (c *console) Say(format string, args ...any) {
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

func (c *console) Sleep(_ context.Context, d time.Duration) bool {
	c.slept += d

	return true
}

func TestManifestsAreAppliedUntilAllAreThere(t *testing.T) {
	t.Parallel()

	list := []manifests.Manifest{
		{ID: "99-pool", Inline: "kind: Pool\n---\nkind: ConfigMap\n"}, {ID: "99-namespace", Inline: "kind: Namespace\n"},
	}
	c := &console{lists: [][]manifests.Manifest{list, list, list}, refuse: map[string]bool{"Pool": true}}
	manifests.Run(t.Context(), c)

	assert.Equal(t, []string{"Namespace", "ConfigMap", "Namespace", "Pool", "ConfigMap"}, c.created,
		"namespaces first, what another one prevents is not prevented, and no third time")
	assert.Equal(t, []string{"99-pool", "99-namespace"}, c.applied)
	assert.Len(t, c.lines, 1)
	assert.Contains(t, c.lines[0], "no matches for kind Pool")
	assert.Equal(t, 15*time.Second, c.slept)
}

func TestManifestsThatCannotBeRead(t *testing.T) {
	t.Parallel()

	for name, one := range map[string]struct {
		manifest manifests.Manifest
		want     string
	}{
		"not YAML": {manifests.Manifest{ID: "99-x", Inline: "a: b: c"}, `error parsing manifest \"99-x\"`},
		"an address that is not the lab's": {
			manifests.Manifest{URL: "https://192.0.2.1/x.yaml"}, "state the manifest inline",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := &console{lists: [][]manifests.Manifest{{one.manifest}}}
			manifests.Run(t.Context(), c)
			assert.Empty(t, c.applied)

			if assert.Len(t, c.lines, 1) {
				assert.Contains(t, c.lines[0], one.want)
			}

			assert.Empty(t, one.manifest.Objects())
		})
	}
}
