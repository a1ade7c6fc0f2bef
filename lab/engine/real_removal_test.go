package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
)

// TestRealRemoval removes nodes from a cluster of real etcd and Kubernetes: a worker whose pods a disruption budget
// holds, two of three control planes and back, one that is dead.
func TestRealRemoval(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	d := newDrill(t, w)
	s := w.stack(3, 2)
	s.Clusters[0].VIP = 0
	file := func() string {
		return d.withBackups(strings.Replace(
			s.yaml(t), "      kubernetesVersion:", "      drainTimeoutSeconds: 20\n      kubernetesVersion:", 1,
		))
	}

	w.up(file())

	k := newWorkload(t, w)
	k.withCNI(5)
	k.deploy("web", 4, 4)

	// A budget holds all pods, some of them on the worker to remove: nothing is lost.
	s.Clusters[0].Workers = 1
	output := w.failedUp(file())
	assert.Contains(t, output, "one-general-2 could not be drained, and was left as it is after 20s")
	assert.Contains(t, output, "pod default/web-")
	assert.Contains(t, output, "The disruption budget web needs 4 healthy pods and has 4 currently")
	assert.Contains(t, w.machines(), "one-general-2")

	assert.Empty(t, k.cordonedNodes(), "the cordon is lifted")

	k.setBudget("web", 2)
	w.up(file())
	assert.NotContains(t, w.machines(), "one-general-2")
	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1")

	// Three control planes, one, and three again: each that goes leaves a snapshot, and etcd always has its majority.
	votes := w.watchEtcd([]string{w.network + ".1.10", w.network + ".1.11", w.network + ".1.12"})
	s.Clusters[0].ControlPlanes = 1
	output = w.outputOf(func() { w.up(file()) })
	assert.Equal(t, 2, strings.Count(output, "etcd: snapshot "+d.folder))
	w.requireMembers(1)
	w.requireNodes("one-cp-1", "one-general-1")

	s.Clusters[0].ControlPlanes = 3

	w.up(file())
	w.requireMembers(3)
	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1")
	w.requireHealth(t)
	t.Log(votes.report(1, true))

	// A control plane that is dead is replaced.
	third := w.vm("one-cp-3")
	w.stopVM(third.ID)

	output = w.outputOf(func() { w.up(file(), optup.Replace([]string{w.urnOf(file(), "one-cp-3-vm")})) })
	assert.Contains(t, output, "one-cp-3: boot: does not answer, so it is not reset before its VM is deleted")
	w.requireMembers(3)
	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1")

	k.eventually(func() bool { return k.readyNodes() == 4 }, "nodes are Ready")
	w.requireHealth(t)

	output = w.outputOf(func() { w.destroy(file()) })
	assert.NotContains(t, output, "wipes itself", "nodes do not leave a cluster that is destroyed")
	w.requireEmpty()
}
