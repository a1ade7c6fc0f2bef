package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestRealFaults provokes failures of a Talos upgrade, one after the other: each ends it with an error that names the
// cause and the machine, and breaks nothing; without it one more run upgrades all nodes.
func TestRealFaults(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	b := &testbed{T: t, w: w, s: stack{Network: w.network, Version: "v1.14.1", Clusters: []cluster{clusterOne(3, 1)}}}
	w.up(b.s.yaml(t))
	w.setGateTimeout("60s")

	b.k = newWorkload(t, w)
	b.k.withCNI(4)
	b.openEtcd()

	b.s.Version = "v1.14.4"
	file, members := b.s.yaml(t), w.etcdMembers()
	users := w.probeAPI(t)

	w.setVerbTimeout("60s", "upgrade")

	fails := func(messages ...string) {
		t.Helper()

		output := w.failedUp(file)
		for _, words := range messages {
			assert.Contains(t, output, words)
		}

		assert.NotContains(t, output, "one-cp-3: upgrade: has installed", "a failure at one machine stops the rest")
	}

	removeFault := w.addFault(datacentre.Fault{Path: "^/v2/", Status: 503})

	fails("one-cp-1 refuses to be upgraded to ", ": 503 Service Unavailable: correct it, then run the same again")
	removeFault()
	assert.Empty(t, b.k.cordonedNodes())
	assert.True(t, w.runsTalos("one-cp-1", "v1.14.1"))

	removeFault = w.addFault(datacentre.Fault{Reverts: true, VMID: w.machines()["one-cp-1"]})

	fails("one-cp-1 has booted and runs Talos v1.14.1", "Talos went back to the one before")
	removeFault()
	assert.Empty(t, b.k.cordonedNodes())

	users.report()

	// A full database takes no writes, and so no lease of the upgrade.
	require.NoError(t, b.raiseAlarm(t.Context()))
	fails("the cluster cannot be changed", "etcdserver: mvcc: database space exceeded")
	require.NoError(t, b.disarm())

	users = w.probeAPI(t)
	third := w.vm("one-cp-3")

	w.stopVM(third.ID)
	fails("one-cp-3: ", "Talos does not answer on "+w.network+".1.12")
	w.startVM(third.ID)
	users.report()

	// Without a majority nothing is touched.
	second := w.vm("one-cp-2")

	w.stopVM(second.ID)
	w.stopVM(third.ID)
	fails("one-cp-1")
	w.startVM(second.ID)
	w.startVM(third.ID)

	w.options.TalosOps = talosops
	began := time.Now()
	output := w.outputOf(func() { w.up(file, optup.Refresh()) })

	t.Logf("four nodes to another version: %s", time.Since(began).Round(time.Second))
	assert.Equal(t, 4, strings.Count(output, ": upgrade: is done"))
	assert.Equal(t, members, w.etcdMembers(), "no member left or joined")
	b.k.eventually(func() bool { return b.k.readyNodes() == 4 }, "all nodes take pods")
	w.requireHealth(t)
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
}
