package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestRealUnreached runs where Proxmox is reachable and machines are not, behind a firewall: running machines do not
// count as dead. Machines that are off are started all the same.
func TestRealUnreached(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := w.stack(3, 2)
	file := func(cores string) string {
		return strings.NewReplacer(
			"      network:", "      drainTimeoutSeconds: 30\n      network:",
			"controlPlane: {count: 3, cores: 2,", "controlPlane: {count: 3, cores: "+cores+",",
		).Replace(s.yaml(t))
	}
	behindFirewall := func(names ...string) {
		require.NoError(t, w.lab.Data.ClearFaults())

		for _, name := range names {
			w.addFault(datacentre.Fault{NoNetwork: true, VMID: w.machines()[name]})
		}
	}

	w.up(file("2"))

	k := newWorkload(t, w)
	k.withCNI(5)
	k.deploy("web", 3, 2)

	boots := w.bootTimes()

	behindFirewall("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1", "one-general-2")
	assert.Contains(t, w.failedUp(file("3")), "no control plane of its cluster answers that has etcd data, so nobody knows what runs")
	assert.Equal(t, boots, w.bootTimes(), "nothing was restarted")

	behindFirewall("one-general-2")

	s.Clusters[0].WorkerMemory = 5120

	assert.Contains(t, w.failedUp(file("2")), "and nothing says that it is dead after 1m30s")
	assert.Equal(t, boots["one-general-2"], w.bootTimes()["one-general-2"])

	// A worker with an unreachable Talos API still has pods, among them those of the other worker, which was changed.
	k.setBudget("web", 3)

	s.Clusters[0].WorkerMemory, s.Clusters[0].Workers = 4096, 1

	assert.Contains(t, w.failedUp(file("2")), "The disruption budget web needs 3 healthy pods and has 3 currently")
	assert.Contains(t, w.machines(), "one-general-2")
	assert.Empty(t, k.cordonedNodes())

	k.setBudget("web", 2)

	output := w.outputOf(func() { w.up(file("2")) })
	assert.Contains(t, output, "one-general-2: node: is cordoned")
	assert.NotContains(t, w.machines(), "one-general-2")
	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1")

	// Machines that are off can be changed safely.
	behindFirewall()

	for _, vm := range w.lab.Data.VMs() {
		if vm.Running {
			w.stopVM(vm.ID)
		}
	}

	w.up(file("2"), optup.Refresh())
	w.requireMembers(3)
	w.requireHealth(t)
}
