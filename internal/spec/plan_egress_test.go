package spec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

// airGapped are changes of the base configuration after which nothing of it is outside of its own network.
func airGapped() map[string]any {
	return map[string]any{
		"egress":                  []any{"example.internal", "10.9.0.0/16"},
		"clusters[0].discovery":   "none",
		"clusters[0].network.dns": []any{"10.0.0.1"},
		"clusters[0].network.ntp": []any{"time.example.internal"},
		"clusters[0].cni":         map[string]any{"kind": "cilium", "chart": "oci://r.example.internal/cilium"},
		"clusters[0].registries":  map[string]any{"mirrors": map[string]any{"*": ownMirror(true)}},
		"clusters[0].gitops": map[string]any{
			"url": "https://git.EXAMPLE.internal/fleet", "operator": map[string]any{"chart": "./operator.tgz"},
		},
		"clusters[0].controlPlane":     map[string]any{"count": 3},
		"clusters[0].workers[0].count": 2,
	}
}

func ownMirror(skipFallback bool) map[string]any {
	return map[string]any{"endpoints": []any{"https://10.9.0.5:5000"}, "skipFallback": skipFallback}
}

// TestEgress: a stack with everything of its own is planned, and one address outside is enough to refuse it.
func TestEgress(t *testing.T) {
	t.Parallel()

	o := options()
	o.FactoryURL = "https://factory.example.internal:8443"

	plan, err := spec.Load(changed(t, airGapped()), o)
	require.NoError(t, err)
	assert.Equal(t, []string{"example.internal", "10.9.0.0/16"}, plan.Egress)
	assert.Equal(t, "none", plan.Clusters[0].Discovery)
	assert.NotContains(t, plan.Warnings, "discovery")

	for name, test := range map[string]struct {
		path  string
		value any
		want  string
	}{
		"the mirrors of all registries, after which they are tried themselves": {
			"clusters[0].registries",
			map[string]any{"mirrors": map[string]any{"*": ownMirror(false)}},
			`clusters[0].registries.mirrors["*"].skipFallback: false lets machines pull from the registry itself`,
		},
		"a domain whose name only ends alike": {
			"clusters[0].network.ntp", []any{"time.another-example.internal"}, "clusters[0].network.ntp[0]",
		},
		"an address next to the network": {"clusters[0].network.dns", []any{"10.10.0.1"}, "clusters[0].network.dns[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			set := airGapped()
			set[test.path] = test.value
			_, err := spec.Load(changed(t, set), o)
			require.ErrorContains(t, err, test.want)
		})
	}

	set := airGapped()
	set["clusters[0].registries"] = map[string]any{"mirrors": map[string]any{"*": ownMirror(true)}}
	plan, err = spec.Load(changed(t, set), o)
	require.NoError(t, err)
	assert.Contains(t, plan.Warnings, `clusters[0].registries.mirrors["*"]: machines ask these mirrors for Talos' installers as `+
		`well; unless they have them, set clusters[0].registries.mirrors["factory.example.internal:8443"] to `+
		"https://factory.example.internal:8443")

	// Who only reads a plan, such as a guard, does not know values that are encrypted.
	o.FactoryURL, o.Blinded = spec.Blinded, true
	_, err = spec.Load(changed(t, airGapped()), o)
	require.NoError(t, err)
}

func TestWarningOfLostControlPlanes(t *testing.T) {
	t.Parallel()

	plan, err := spec.Load(changed(t, map[string]any{
		"clusters[0].discovery": "none", "clusters[0].network.vip": nil,
	}), options())
	require.NoError(t, err)
	assert.Contains(t, plan.Warnings, "clusters[0].discovery: without it, all machines use the API of the first "+
		"control plane, and lose it with that machine; set clusters[0].network.vip or clusters[0].endpoint")
}
