package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
)

// TestADeadWorkerIsSkipped: with skip, a run upgrades Talos and changes machine configurations without the worker; the
// first run without skip includes it.
func TestADeadWorkerIsSkipped(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Version: "v1.14.3", Clusters: []cluster{clusterOne(1, 2)}}
	w.up(s.yaml(t))

	w.stopVM(3001)

	s.Version = "v1.14.4"
	s.Clusters[0].WorkerYAML = `nodes: {"2": {skip: true}}`
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

	output := w.outputOf(func() { w.up(file()) })
	assert.Contains(t, output, "one-general-2 is skipped: it keeps its Talos")
	assert.Equal(t, map[string]string{"one-cp-1": "v1.14.4", "one-general-1": "v1.14.4"}, versions())
	assert.Contains(t, output, "one-general-1: change: ")
	assert.NotContains(t, output, "one-general-2: change: ")
	w.up(file(), optup.ExpectNoChanges())

	w.startVM(3001)

	s.Clusters[0].WorkerYAML = ""
	done := w.up(file())
	assert.Equal(t, "update", done["Command one-general-2-configuration"])
	assert.Equal(t, "v1.14.4", versions()["one-general-2"])
	w.requireRunning(3)
	w.up(file(), optup.ExpectNoChanges())
}
