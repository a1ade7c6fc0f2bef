package stacks

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/tokens"
)

const gpuStack = `config:
  talos-proxmox:hosts:
    - {name: pve1, address: 127.1.0.11, ssh: {acceptAnyHostKey: true}, prep: {}, gpus: [{name: rtx4000, pci: "01:00", generation: ada}]}
    - {name: pve2, address: 127.1.0.12, ssh: {acceptAnyHostKey: true}, gpus: [{name: rtx4000, pci: "01:00", generation: ada}]}
    - {name: pve3, address: 127.1.0.13, ssh: {acceptAnyHostKey: true}, gpus: [{name: rtx4000, pci: "01:00", generation: ada}]}
  talos-proxmox:templates:
    talos: {version: v1.13.0}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.36.0
      network: {cidr: 127.1.1.0/24, gateway: 127.1.1.1}
      controlPlane: {count: 1, hosts: [pve3]}
      gpuWorkers: [{name: gpu, gpu: rtx4000, count: 2, timeSlicing: 4}]
`

// pendingRebootFacts are the facts of a host with a pending reboot: its devices have other IOMMU groups than
// afterwards, or none. The GPU has the given one.
func pendingRebootFacts(group string) *hostfacts.Facts {
	facts := enginetest.PreparedHost("pve1")
	facts.Prep.Changes = []string{hostfacts.ChangeReboot}

	facts.Prep.Pending = []string{"the kernel runs without iommu=pt"}
	for i := range facts.Devices {
		facts.Devices[i].Group = ""
		if strings.HasPrefix(facts.Devices[i].Address, "0000:01:00.") {
			facts.Devices[i].Group = group
		}
	}

	return facts
}

func TestMappingUsesFactsAfterTheReboot(t *testing.T) {
	t.Parallel()

	for name, preview := range map[string]bool{"up": false, "preview": true} {
		for _, group := range []string{"", "7"} {
			t.Run(name+", group "+group, func(t *testing.T) {
				t.Parallel()
				o := stackOptionsOf(t, "test", gpuStack)
				o.Preview = preview
				o.Facts, o.Rebooted = map[string]*hostfacts.Facts{"pve1": pendingRebootFacts(group)}, true
				r := mustDeploy(t, o)

				entry := r.ByType(tokens.PCIMapping)["rtx4000-mapping"].Input("maps").ArrayValue()[0].ObjectValue()
				assert.Equal(t, preview, entry["iommuGroup"].ContainsUnknowns())

				if !preview {
					assert.Equal(t, resource.NewProperty(12.0), entry["iommuGroup"], "as the verified host says")
				}
			})
		}
	}
}

func TestMappingOfAnUnreachableHostIsUnknownInPreviews(t *testing.T) {
	t.Parallel()
	o := stackOptionsOf(t, "test", gpuStack)
	o.Preview = true
	o.Facts = map[string]*hostfacts.Facts{"pve2": nil}
	r := mustDeploy(t, o)

	entry := r.ByType(tokens.PCIMapping)["rtx4000-mapping"].Input("maps").ArrayValue()[1].ObjectValue()
	assert.True(t, entry["id"].ContainsUnknowns())
	assert.Contains(t, strings.Join(r.Warnings(), "\n"), "hosts[1]: pve2 cannot be queried")
}

func TestRawGPUsHaveNoMapping(t *testing.T) {
	t.Parallel()
	o := stackOptionsOf(t, "test", strings.ReplaceAll(gpuStack, "generation: ada}", "generation: ada, passthrough: raw}"))
	delete(o.Config, "proxmoxve:apiToken")
	o.Config["proxmoxve:username"], o.Config["proxmoxve:password"] = "root@pam", "secret"
	r := mustDeploy(t, o)

	assert.Empty(t, r.ByType(tokens.PCIMapping))
	assert.Equal(
		t, resource.NewProperty("0000:01:00"), r.ByType(tokens.VirtualMachine)["one-gpu-2-vm"].Input("hostpcis[0].id"),
	)
	assert.Contains(t, r.ByType(tokens.VirtualMachine)["one-gpu-1-vm"].DependsOn(), "pve1-verify")
}

func TestGPUOperatorValuesAreAnOutput(t *testing.T) {
	t.Parallel()

	for version, warns := range map[string]bool{"v1.13.0": false, "v1.12.6": true} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			document := strings.Replace(gpuStack, "v1.13.0", version, 1)
			document = strings.Replace(document, "v1.36.0", "v1.35.0\n      gpuOperator: true", 1)
			r := mustDeploy(t, stackOptionsOf(t, "test", document))

			values := at(r.Exports()[GPUOperatorValues], "one").(string)
			assert.Contains(t, values, "replicas: 4")
			assert.Contains(t, values, "driverInstallDir: /usr/local")
			assert.Equal(t, warns, slices.ContainsFunc(r.Warnings(), func(w string) bool {
				return strings.HasPrefix(
					w, "cluster one: NVIDIA's GPU Operator fails to validate the driver on Talos v1.12.6; use v1.13 or later",
				)
			}))
		})
	}
}

// TestUSBDevicesHaveMappings: machines get USB devices by mappings, for which hosts need no preparation.
func TestUSBDevicesHaveMappings(t *testing.T) {
	t.Parallel()

	document := strings.Replace(gpuStack, "gpus: [{name: rtx4000, pci: \"01:00\", generation: ada}]}",
		"gpus: [{name: rtx4000, pci: \"01:00\", generation: ada}], devices: [{name: zigbee, usb: {id: 10c4:ea60, port: 1-4}}]}", 1)
	document = strings.Replace(document, "gpuWorkers:",
		"workers: [{name: home, count: 1, devices: [zigbee], firstVmid: 3900, firstAddress: 127.1.1.70}]\n      gpuWorkers:", 1)
	o := stackOptionsOf(t, "test", document)
	facts := enginetest.PreparedHost("pve1")
	facts.USB = []hostfacts.USBDevice{{Port: "1-4", ID: "10c4:ea60"}}
	o.Facts = map[string]*hostfacts.Facts{"pve1": facts}
	r := mustDeploy(t, o)

	entry := r.ByType(tokens.USBMapping)["zigbee-mapping"].Input("maps").ArrayValue()[0].ObjectValue()
	assert.Equal(t, resource.NewProperty("1-4"), entry["path"])

	machine := r.ByType(tokens.VirtualMachine)["one-home-1-vm"]
	assert.Equal(t, resource.NewProperty("zigbee"), machine.Input("usbs[0].mapping"))
	assert.Equal(t, resource.NewProperty(false), machine.Input("migrate"))
	assert.Contains(t, machine.DependsOn(), "zigbee-mapping")
	assert.NotContains(t, machine.DependsOn(), "pve1-verify")
	assert.Equal(t, []string{"rtx4000"}, slices.Collect(maps.Keys(r.Exports()[PCIMappings].ObjectValue().Mappable())))

	facts.USB = nil
	_, err := enginetest.Run(o, deploy)
	require.ErrorContains(t, err, "hosts[0].devices[0].usb.port: pve1 has no USB device at port 1-4")
}
