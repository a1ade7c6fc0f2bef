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

	"talos-proxmox/lab/datacentre"
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

// usbStack has a control plane on pve1 with its Zigbee stick, and another host whose stick no machine has.
const usbStack = `config:
  talos-proxmox:hosts:
    - {name: pve1, address: NETWORK.0.11, devices: [{name: zigbee, usb: {id: 10C4:EA60}}, {name: zwave, usb: {id: 0658:0200, port: 1-7.2}}]}
    - {name: pve2, address: NETWORK.0.12, devices: [{name: zigbee, usb: {id: 10c4:ea60, port: 1-4}}]}
  talos-proxmox:templates:
    talos: {version: v1.14.4, datastore: local-lvm, extensions: [usb-modem-drivers]}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.37.2
      network: {cidr: NETWORK.1.0/24, gateway: NETWORK.1.1, dns: [NETWORK.1.1]}
      controlPlane:
        count: 1
        cores: 2
        memoryMiB: 4096
        diskGiB: 20
        nodes: {"1": {host: pve1, devices: [zigbee]}}
`

// TestUSBDevices: machines get USB devices of their hosts by mappings, without a preparation of the hosts, and keep
// them where the port changes.
func TestUSBDevices(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 2, Mappings: []string{"zigbee", "zwave"}})
	text := strings.ReplaceAll(usbStack, "NETWORK", w.network)

	assert.Contains(t, w.refusedUp(strings.Replace(text, "id: 10C4:EA60", "id: 051d:0002", 1)),
		"hosts[0].devices[0].usb.id: pve1 has no USB device 051d:0002: it has 10c4:ea60 at 1-4 (Silicon Labs CP2102N USB to UART "+
			"Bridge Controller), 0658:0200 at 1-7.1, 0658:0200 at 1-7.2")
	assert.Contains(t, w.refusedUp(strings.Replace(text, ", port: 1-7.2", "", 1)),
		"hosts[0].devices[1].usb.port: is missing, and pve1 has 2 USB devices 0658:0200, of which Proxmox would take any")

	w.up(text)

	assert.Equal(t, "mapping=zigbee,usb3=1", w.vm("one-cp-1").Config["usb0"])
	assert.Equal(t, "id=10c4:ea60,node=pve1", w.lab.Data.Records(datacentre.USBMappings)["zigbee"]["map"])
	assert.NotContains(t, w.lab.Data.Records(datacentre.USBMappings), "zwave", "no machine has it")

	node, err := w.kubeClient().CoreV1().Nodes().Get(t.Context(), "one-cp-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "true", node.Labels["devices.talos-proxmox/zigbee"])
	assert.Empty(t, w.up(text, optup.ExpectNoChanges()))

	// The port is the mapping's, so the machine goes on.
	started := w.vm("one-cp-1").Since
	text = strings.Replace(text, "id: 10C4:EA60", "id: 10C4:EA60, port: 1-4", 1)
	w.up(text)
	assert.Equal(t, "id=10c4:ea60,node=pve1,path=1-4", w.lab.Data.Records(datacentre.USBMappings)["zigbee"]["map"])
	assert.Equal(t, started, w.vm("one-cp-1").Since)

	// Another device restarts the machine, as the provider does.
	text = strings.Replace(text, "devices: [zigbee]", "devices: [zigbee, zwave]", 1)
	assert.Contains(t, w.previewOutput(text), "one-cp-1 restarts: USB devices zigbee → zigbee, zwave (clusters[0].controlPlane.nodes.1.devices)")
	w.up(text)
	assert.Equal(t, "mapping=zwave,usb3=1", w.vm("one-cp-1").Config["usb1"])
	require.Len(t, w.vm("one-cp-1").Hardware.USB, 2)
	assert.NotEqual(t, started, w.vm("one-cp-1").Since)
}
