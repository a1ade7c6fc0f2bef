package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/server"
)

// TestPoolNetwork: control planes and workers on different bridges and subnets. Every node registers with its address
// in its own network, and a pool that runs moves to another bridge with a restart.
func TestPoolNetwork(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 2, Bridges: []string{"vmbr1"}})
	s := w.stack(3, 1)
	c := &s.Clusters[0]
	c.WorkerYAML = "extraNICs: [{bridge: vmbr0, cidr: " + w.network + ".3.0/24}]\n" +
		"        - name: dmz\n          count: 1\n          firstVmid: 3100\n          diskGiB: 20\n" +
		"          network: {cidr: " + w.network + ".2.0/24, gateway: " + w.network + ".2.1, bridge: vmbr1, vlan: 20}"
	w.up(s.yaml(t))
	w.requireMembers(3)

	list, err := w.kubeClient().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	addresses := map[string]string{}

	for _, n := range list.Items {
		for _, address := range n.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				addresses[n.Name] += address.Address
			}
		}
	}

	assert.Equal(t, map[string]string{
		"one-cp-1": w.network + ".1.10", "one-cp-2": w.network + ".1.11", "one-cp-3": w.network + ".1.12",
		"one-general-1": w.network + ".1.20", "one-dmz-1": w.network + ".2.20",
	}, addresses)
	assert.Contains(t, w.vm("one-dmz-1").Config["net0"], "bridge=vmbr1")
	assert.Contains(t, w.vm("one-dmz-1").Config["net0"], "tag=20")
	assert.ElementsMatch(t, []string{"ip=" + w.network + ".2.20/24", "gw=" + w.network + ".2.1"},
		strings.Split(w.vm("one-dmz-1").Config["ipconfig0"], ","), "in the order of the provider")
	w.up(s.yaml(t), optup.ExpectNoChanges())

	c.WorkerYAML = c.WorkerYAML[:len(c.WorkerYAML)-len("vmbr1, vlan: 20}")] + "vmbr0}"

	assert.Contains(t, w.previewOutput(s.yaml(t)), "clusters[0].workers[1].network.bridge")
	done := w.up(s.yaml(t))
	assert.Equal(t, []string{"VirtualMachine one-dmz-1-vm"}, vms(done.withOp("update")))
	assert.Contains(t, w.vm("one-dmz-1").Config["net0"], "bridge=vmbr0")
	w.requireRunning(5)
}
