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

// TestRealFaults has an upgrade of Talos meet what goes wrong on its way, one after the other: each ends it with an
// error that says what and where, nothing is broken by it, and without it one more run brings all nodes there.
func TestRealFaults(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	b := &bed{T: t, w: w, s: stack{Network: w.network, Version: "v1.14.1", Clusters: []cluster{one(3, 1)}}}
	w.up(b.s.yaml(t))
	w.gateWithin("60s")

	b.k = workloadOn(t, w)
	b.k.withCNI(4)
	b.openEtcd()

	b.s.Version = "v1.14.4"
	file, members := b.s.yaml(t), w.etcdIDs()
	users := w.patrols(t)

	w.verbsWithin("60s", "upgrade")

	fails := func(says ...string) {
		t.Helper()

		said := w.fails(file)
		for _, words := range says {
			assert.Contains(t, said, words)
		}

		assert.NotContains(t, said, "one-cp-3: upgrade: has installed", "a failure at one machine stops the rest")
	}

	_, err := w.lab.Data.AddFault(datacentre.Fault{Path: "^/v2/", Status: 503})
	require.NoError(t, err)
	fails("one-cp-1 refuses to be upgraded to ", ": 503 Service Unavailable: correct it, then run the same again")
	require.NoError(t, w.lab.Data.ClearFaults())
	assert.Empty(t, b.k.cordoned())
	assert.True(t, w.runs("one-cp-1", "v1.14.1"))

	_, err = w.lab.Data.AddFault(datacentre.Fault{Reverts: true, VMID: w.machines()["one-cp-1"]})
	require.NoError(t, err)
	fails("one-cp-1 has booted and runs Talos v1.14.1", "Talos went back to the one before")
	require.NoError(t, w.lab.Data.ClearFaults())
	assert.Empty(t, b.k.cordoned())

	users.report()

	// A full database takes no writes, and no lease says who upgrades.
	require.NoError(t, b.raiseAlarm(t.Context()))
	fails("the cluster cannot be changed", "etcdserver: mvcc: database space exceeded")
	require.NoError(t, b.disarm())

	users = w.patrols(t)
	third, _ := w.lab.Data.VM(w.machines()["one-cp-3"])

	w.do(w.lab.Data.Stop(labRoot, third.Host, third.ID))
	fails("one-cp-3: ", "Talos does not answer on "+w.network+".1.12")
	w.do(w.lab.Data.Start(labRoot, third.Host, third.ID))
	users.report()

	// Without a majority nothing is touched.
	second, _ := w.lab.Data.VM(w.machines()["one-cp-2"])

	w.do(w.lab.Data.Stop(labRoot, second.Host, second.ID))
	w.do(w.lab.Data.Stop(labRoot, third.Host, third.ID))
	fails("one-cp-1")
	w.do(w.lab.Data.Start(labRoot, second.Host, second.ID))
	w.do(w.lab.Data.Start(labRoot, third.Host, third.ID))

	w.options.TalosOps = talosops
	began := time.Now()
	said := w.since(func() { w.up(file, optup.Refresh()) })

	t.Logf("four nodes to another version: %s", time.Since(began).Round(time.Second))
	assert.Equal(t, 4, strings.Count(said, ": upgrade: is done"))
	assert.Equal(t, members, w.etcdIDs(), "no member left or joined")
	b.k.eventually(func() bool { return b.k.ready() == 4 }, "all nodes take pods")
	w.requireHealth(t)
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
}
