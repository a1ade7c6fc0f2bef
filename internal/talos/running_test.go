package talos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDifferences(t *testing.T) {
	t.Parallel()

	planned := NodeVersions{Talos: "v1.12.6", Schematic: "376567", Kubelet: "v1.35.0", APIServer: "v1.35.0"}
	for name, test := range map[string]struct {
		running NodeVersions
		want    string
	}{
		"as planned":       {planned, ""},
		"nothing is known": {NodeVersions{}, ""},
		"an older Talos":   {NodeVersions{Talos: "v1.12.5", Schematic: "376567"}, "runs Talos v1.12.5 (planned: v1.12.6)"},
		"another schematic": {
			NodeVersions{Talos: "v1.12.6", Schematic: "ce4c98"}, "runs schematic ce4c98 (planned: 376567)",
		},
		"an older Kubernetes": {
			NodeVersions{Kubelet: "v1.34.0", APIServer: "v1.34.1"},
			"runs kubelet v1.34.0 (planned: v1.35.0), API server v1.34.1 (planned: v1.35.0)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			assert.Equal(t, test.want, planned.Differences(test.running))

			r := Running{Nodes: map[string]NodeVersions{"w-1": test.running}}
			if test.want == "" {
				assert.Empty(t, r.Differences(map[string]NodeVersions{"w-1": planned, "w-2": planned}))
			} else {
				assert.Equal(
					t, map[string]string{"w-1": test.want}, r.Differences(map[string]NodeVersions{"w-1": planned, "w-2": planned}),
				)
			}
		})
	}
}

func TestUpdatedKeepsVersionsOfSilentNodes(t *testing.T) {
	t.Parallel()

	then := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	before := Running{Asked: then, Nodes: map[string]NodeVersions{
		"cp-1": {Talos: "v1.12.5", Schematic: "a", Kubelet: "v1.35.0", APIServer: "v1.35.0"}, "w-1": {Talos: "v1.12.5"},
	}}
	now := then.Add(time.Hour)

	assert.Equal(t, before, before.Updated(Running{Asked: now}), "no one was reached")
	assert.Equal(
		t, before, before.Updated(Running{Asked: now, Nodes: map[string]NodeVersions{"w-1": {Talos: "v1.12.5"}}}),
		"nothing is new",
	)
	first := Running{Asked: now, Nodes: map[string]NodeVersions{"w-1": {Talos: "v1.12.5"}}}
	assert.Equal(t, first, Running{}.Updated(first))
	after := before.Updated(
		Running{Asked: now, Nodes: map[string]NodeVersions{"cp-1": {Talos: "v1.12.6", Schematic: "b"}}},
	)
	assert.Equal(t, Running{Asked: now, Nodes: map[string]NodeVersions{
		"cp-1": {Talos: "v1.12.6", Schematic: "b", Kubelet: "v1.35.0", APIServer: "v1.35.0"}, "w-1": {Talos: "v1.12.5"},
	}}, after)
	assert.Equal(t, "v1.12.5", before.Nodes["cp-1"].Talos, "the one before is left as it was")
}

func TestVersionsOfACluster(t *testing.T) {
	t.Parallel()

	r := Running{
		Nodes: map[string]NodeVersions{
			"cp-1": {Talos: "v1.12.6", APIServer: "v1.35.0"}, "w-1": {Talos: "v1.12.5"}, "w-2": {},
		},
	}
	assert.Equal(t, "v1.12.6", r.Talos([]string{"cp-1"}))
	assert.Equal(t, "v1.12.5, v1.12.6", r.Talos([]string{"cp-1", "w-1"}))
	assert.Equal(t, "unknown, v1.12.5", r.Talos([]string{"w-2", "w-1"}))
	assert.Equal(t, "unknown", Running{}.Kubernetes([]string{"cp-1"}))
	assert.Equal(t, "v1.35.0", r.Kubernetes([]string{"cp-1"}))
}

func TestKubernetesVersions(t *testing.T) {
	t.Parallel()

	assert.Equal(t, []string{"v1.34.3", "v1.35.0"}, KubernetesVersions(
		`{"healthy":true,"nodes":{"a":{"kubelet":"v1.34.3","apiServer":"v1.35.0"},"b":{"kubelet":"v1.34.3"},"c":{"talos":"v1.12.6"}}}`))
	assert.Empty(t, KubernetesVersions("healthy"))
}
