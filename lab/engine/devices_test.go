package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/server"
)

// devicesStack has three control planes on three unequal hosts, two of which give theirs an integrated GPU.
const devicesStack = `config:
  talos-proxmox:hosts:
    - name: pve1
      address: NETWORK.0.11
      prep: {reboot: whenIdle}
      devices: [{name: radeon, pci: "06:00.0", kind: amd-gpu}]
    - name: pve2
      address: NETWORK.0.12
      prep: {reboot: whenIdle}
      devices: [{name: uhd, pci: "00:02.0", kind: intel-gpu}]
    - {name: pve3, address: NETWORK.0.13}
  talos-proxmox:templates:
    talos: {version: v1.14.4, datastore: local-lvm}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.37.2
      network: {cidr: NETWORK.1.0/24, gateway: NETWORK.1.1, dns: [NETWORK.1.1]}
      controlPlane:
        count: 3
        cores: 2
        memoryMiB: 4096
        diskGiB: 20
        nodes:
          "1": {host: pve1, devices: [radeon]}
          "2": {host: pve2, devices: [uhd]}
          "3": {host: pve3}
`

// TestIntegratedGPUsOfControlPlanes: control planes get the integrated GPUs of their hosts, which are prepared for
// that, and Talos drives them.
func TestIntegratedGPUsOfControlPlanes(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 3, Mappings: []string{"radeon", "uhd"}})
	text := strings.ReplaceAll(devicesStack, "NETWORK", w.network)

	absent := strings.Replace(text, "06:00.0", "06:00.1", 1)
	assert.Contains(t, w.refusedUp(absent), "hosts[0].devices[0].pci: 0000:06:00.1 is not there on pve1: "+
		"`lspci -Dnn` there lists its devices; a virtual function (SR-IOV) is there once the host has created it")
	assert.Contains(t, w.refusedUp(strings.Replace(text, "kind: amd-gpu", "kind: intel-gpu", 1)),
		"0000:06:00.0 on pve1 is not an Intel GPU but 0000:06:00.0 VGA compatible controller")

	w.up(text)

	var templates []string

	for _, vm := range w.lab.Data.VMs() {
		if vm.Template {
			templates = append(templates, vm.Name)
		}
	}

	for name, want := range map[string]struct{ device, driver, template string }{
		"one-cp-1": {"radeon", "amdgpu", "talos-v1.14.4-talos-amd-gpu"},
		"one-cp-2": {"uhd", "i915", "talos-v1.14.4-talos-intel-gpu"},
	} {
		vm := w.vm(name)
		assert.Contains(t, vm.Config["hostpci0"], "mapping="+want.device)

		node, err := w.kubeClient().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "true", node.Labels["devices.talos-proxmox/"+want.device])
		assert.Contains(t, templates, want.template)

		w.withTalosClient(node.Status.Addresses[0].Address, func(ctx context.Context, c *talosclient.Client) {
			device, err := safe.StateGetByID[*hardware.PCIDevice](ctx, c.COSI, "0000:01:00.0")
			require.NoError(t, err)
			assert.Equal(t, want.driver, device.TypedSpec().Driver, name)
		})
	}

	assert.Empty(t, w.vm("one-cp-3").Config["hostpci0"])
	assert.Empty(t, w.up(text, optup.ExpectNoChanges()))
}
