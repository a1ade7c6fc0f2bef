package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	commonapi "github.com/siderolabs/talos/pkg/machinery/api/common"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRealLossOfAllControlPlanes deletes every control plane of a cluster: an up creates the machines again and does
// not bootstrap an empty cluster on them, so that the worker keeps its pods; a restore brings the objects back, and the
// same containers keep running.
func TestRealLossOfAllControlPlanes(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	d := newDrill(t, w)

	s := w.stack(3, 1)
	s.Clusters[0].VIP = 0
	file := d.withBackups(s.yaml(t))
	w.up(file)

	k := newWorkload(t, w)
	k.withCNI(4)
	k.deploy("web", 2, 1)

	snapshot := d.backUp()
	running := w.workerContainers(s)
	require.Len(t, slices.DeleteFunc(slices.Clone(running), notInPods("default/web-")), 2, "the worker runs %v", running)

	for _, name := range []string{"one-cp-1", "one-cp-2", "one-cp-3"} {
		w.removeVM(w.vm(name).ID)
	}

	output := w.outputOf(func() {
		_, err := w.tryUp(t.Context(), file, optup.Refresh())
		require.Error(t, err)
	})
	assert.Contains(t, output, "none of its control planes (one-cp-1, one-cp-2, one-cp-3) has etcd data")
	assert.Contains(t, output, "talos-proxmox restore")
	w.requireMembers(0)

	out, err := w.runCommand("restore", w.options.Stack, snapshot, "--identities", d.keyFile(d.etcdKey), "--confirm", "one")
	require.NoError(t, err, out)
	assert.NotContains(t, out, "wipes its data", "none has any")

	w.up(file, optup.Refresh())
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
	w.requireMembers(3)
	d.requireRestored()

	k = newWorkload(t, w)
	k.eventually(func() bool { return k.readyNodes() == 4 }, "nodes are Ready")
	assert.Equal(t, running, w.workerContainers(s), "no kubelet has ended the worker's pods meanwhile: containers are never the same twice")

	// The worker takes new pods.
	k.deploy("later", 1, 0)

	later := func(id string) bool { return strings.HasPrefix(id, "default/later-") }
	assert.Equal(t, running, slices.DeleteFunc(w.workerContainers(s), later))
}

// notInPods reports whether a container is in none of the pods with this prefix.
func notInPods(pods string) func(id string) bool {
	return func(id string) bool { return !strings.HasPrefix(id, pods) }
}

// workerContainers returns the containers of pods on the worker, from its Talos API. Pod names are never reused.
func (w *world) workerContainers(s stack) (running []string) {
	w.t.Helper()

	address := w.plan(s).Clusters[0].Workers[0].Address.Addr().String()
	w.withTalosClient(address, func(ctx context.Context, c *talosclient.Client) {
		list, err := c.Containers(ctx, constants.K8sContainerdNamespace, commonapi.ContainerDriver_CRI)
		require.NoError(w.t, err)

		for _, message := range list.GetMessages() {
			for _, container := range message.GetContainers() {
				running = append(running, container.GetId())
			}
		}
	})

	slices.Sort(running)

	return running
}
