package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
)

// TestADeadWorkerIsSkipped: told so, a run upgrades Talos and changes machine configurations without it, and the one
// after that takes it in.
func TestADeadWorkerIsSkipped(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Version: "v1.14.3", Clusters: []cluster{one(1, 2)}}
	w.up(s.yaml(t))

	w.do(w.lab.Data.Stop(labRoot, w.hostOf(3001), 3001))

	s.Version = "v1.14.4"
	s.Clusters[0].Pins = `nodes: {"2": {skip: true}}`
	file := func() string {
		return strings.Replace(s.yaml(t), "      network:", "      patches: ['machine: {sysctls: {vm.swappiness: \"10\"}}']\n      network:", 1)
	}
	versions := func() map[string]string {
		found := map[string]string{}
		for _, m := range w.lab.Machines.Status() {
			found[m.Name] = m.Version
		}

		return found
	}

	said := w.since(func() { w.up(file()) })
	assert.Contains(t, said, "one-general-2 is skipped: it keeps its Talos")
	assert.Equal(t, map[string]string{"one-cp-1": "v1.14.4", "one-general-1": "v1.14.4"}, versions())
	assert.Contains(t, said, "one-general-1: change: ")
	assert.NotContains(t, said, "one-general-2: change: ")
	w.up(file(), optup.ExpectNoChanges())

	w.do(w.lab.Data.Start(labRoot, w.hostOf(3001), 3001))

	s.Clusters[0].Pins = ""
	done := w.up(file())
	assert.Equal(t, "update", done["ConfigurationApply one-general-2-configuration"])
	assert.Equal(t, "v1.14.4", versions()["one-general-2"])
	w.requireRunning(3)
	w.up(file(), optup.ExpectNoChanges())
}
