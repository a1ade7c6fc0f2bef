package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/enginetest"
)

const (
	plannedSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

	gateWithOldWorker = `{"healthy":true,"etcdMembers":["one-cp-1"],"asked":"2026-11-21T12:00:00Z","nodes":{
		"one-cp-1":{"talos":"v1.12.6","schematic":"` + plannedSchematic + `","kubelet":"v1.35.0","apiServer":"v1.35.0"},
		"one-general-1":{"talos":"v1.12.5","schematic":"` + plannedSchematic + `","kubelet":"v1.35.0"}}}`
	upgradedWorker = `{"asked":"2026-11-21T13:00:00Z","nodes":{"one-general-1":{"talos":"v1.12.6","schematic":"` +
		plannedSchematic + `","kubelet":"v1.35.0"}}}`
)

func TestTalosClusterVersionOutputs(t *testing.T) {
	t.Parallel()

	behind := map[string]any{"one-general-1": "runs Talos v1.12.5 (planned: v1.12.6)"}
	for name, test := range map[string]struct {
		gate, now         string // the outputs of the gate and of the query
		talos, kubernetes string
		asked             string
		differences       map[string]any
		queries           int
	}{
		"the planned versions, without another query": {
			now:         "not asked",
			talos:       "v1.12.6",
			kubernetes:  "v1.35.0",
			asked:       enginetest.GateTime,
			differences: map[string]any{},
		},
		"a worker that was not upgraded": {
			gate:        gateWithOldWorker,
			now:         `{"asked":"2026-11-21T13:00:00Z","nodes":{"one-general-1":{"talos":"v1.12.5"}}}`,
			talos:       "v1.12.5, v1.12.6",
			kubernetes:  "v1.35.0",
			asked:       "2026-11-21T12:00:00Z",
			differences: behind,
			queries:     1,
		},
		"a worker that was upgraded since the gate ran": {
			gate:        gateWithOldWorker,
			now:         upgradedWorker,
			talos:       "v1.12.6",
			kubernetes:  "v1.35.0",
			asked:       "2026-11-21T13:00:00Z",
			differences: map[string]any{},
			queries:     1,
		},
		"nodes that cannot be reached now": {
			gate:        gateWithOldWorker,
			now:         `{"asked":"2026-11-21T13:00:00Z"}`,
			talos:       "v1.12.5, v1.12.6",
			kubernetes:  "v1.35.0",
			asked:       "2026-11-21T12:00:00Z",
			differences: behind,
			queries:     1,
		},
		"a gate of an older version of the program": {
			gate:        `{"healthy":true,"etcdMembers":["one-cp-1"],"nodes":["one-cp-1","one-general-1"]}`,
			now:         "not asked",
			talos:       "unknown",
			kubernetes:  "unknown",
			asked:       "unknown",
			differences: map[string]any{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := runCluster(t, enginetest.Options{Gate: test.gate, Versions: test.now}, plannedCluster(1, 1))
			outputs := r.Outputs("one")
			assert.False(t, outputs["talosVersion"].IsSecret(), "what runs is no secret")
			assert.Equal(t, test.talos, outputs["talosVersion"].StringValue())
			assert.Equal(t, test.kubernetes, outputs["kubernetesVersion"].StringValue())
			assert.Equal(t, test.asked, outputs["versionsAsked"].StringValue())
			assert.Equal(t, test.differences, resource.NewProperty(outputs["differences"].ObjectValue()).Mappable())

			assert.Len(t, r.Calls(enginetest.LocalRun), test.queries)

			if len(test.differences) == 0 {
				assert.Empty(t, r.Warnings())
			} else {
				assert.Equal(t, []string{"not every node of cluster one runs what is planned for it:\n  one-general-1 runs Talos v1.12.5 (planned: v1.12.6)\n" +
					"`pulumi up --replace '**::one-talos'` brings every node to its version of Talos and its schematic (docs/upgrades.md); " +
					"nothing else waits for it"}, r.Warnings())
			}
		})
	}
}

func TestTalosClusterVersionsAreUnknownInPreviews(t *testing.T) {
	t.Parallel()
	r := runCluster(t, enginetest.Options{Preview: true}, plannedCluster(1, 1))

	assert.True(
		t, r.Outputs("one")["talosVersion"].IsComputed() || r.Outputs("one")["talosVersion"].IsOutput(),
		jsonText(r.Outputs("one")["talosVersion"]),
	)
	assert.Empty(t, r.Calls(enginetest.LocalRun))
	assert.Empty(
		t, r.Calls("talos:machine/getConfiguration:getConfiguration"), "nothing is generated from unknown secrets",
	)
}
