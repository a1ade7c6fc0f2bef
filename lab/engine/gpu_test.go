package engine_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/scripttest"
	"talos-proxmox/lab/datacentre"
)

// gpuStack is a stack of one host with a GPU and one control plane.
type gpuStack struct {
	Network      string
	Workers      int
	TimeSlicing  int
	PCI          string
	Labels       string // of the GPU workers, as YAML
	Taints       string // of the GPU workers, as YAML
	Driver       string // as YAML
	ControlPlane string // of the control plane, as YAML
	Patches      string // of the cluster, as YAML
}

var gpuTemplate = template.Must(template.New("gpu").Parse(`config:
  talos-proxmox:hosts:
    - name: pve1
      address: {{.Network}}.0.11
      prep: {reboot: whenIdle}
      gpus: [{name: rtx4000, pci: "{{.PCI}}", generation: ada}]
    - {name: pve2, address: {{.Network}}.0.12}
  talos-proxmox:templates:
    talos: {version: v1.14.4, datastore: local-lvm}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.37.2
      network: {cidr: {{.Network}}.1.0/24, gateway: {{.Network}}.1.1, dns: [{{.Network}}.1.1]}
      patches: {{.Patches}}
      controlPlane: {cores: 2, memoryMiB: 4096, diskGiB: 20{{.ControlPlane}}}
{{- if ge .Workers 0}}
      gpuWorkers:
        - {name: gpu, count: {{.Workers}}, gpu: rtx4000, timeSlicing: {{.TimeSlicing}}, memoryMiB: 8192, diskGiB: 20, labels: {{.Labels}}, taints: {{.Taints}}, driver: {{.Driver}}}
{{- end}}
`))

func (s gpuStack) yaml(t *testing.T) string {
	t.Helper()

	for field, value := range map[*string]string{
		&s.PCI:          "01:00",
		&s.Labels:       "{}",
		&s.Taints:       "[]",
		&s.Driver:       "{}",
		&s.ControlPlane: ", hosts: [pve2]",
		&s.Patches:      "[]",
	} {
		if *field == "" {
			*field = value
		}
	}

	var text bytes.Buffer

	require.NoError(t, gpuTemplate.Execute(&text, s))

	return text.String()
}

// setGateTimeout bounds the health gate, which otherwise waits for a quarter of an hour.
func (w *world) setGateTimeout(limit string) { w.setVerbTimeout(limit, "wait") }

// setVerbTimeout bounds the waits of verbs of talosops.
func (w *world) setVerbTimeout(limit string, verbs ...string) {
	w.t.Helper()

	path := filepath.Join(w.dir, "talosops-"+limit)
	script := fmt.Sprintf("#!/bin/sh\ncase \"$1\" in %[2]s) exec %[1]q \"$@\" --timeout %[3]s;; *) exec %[1]q \"$@\";; esac\n",
		talosops, strings.Join(verbs, "|"), limit)
	scripttest.Program(w.t, path, script)

	w.options.TalosOps = path
}

// requireGPUs checks how many GPUs a node offers to pods.
func (w *world) requireGPUs(name string, want int64) {
	w.t.Helper()

	node, err := w.kubeClient().CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)

	gpus := node.Status.Allocatable["nvidia.com/gpu"]
	require.Equal(w.t, want, gpus.Value())
}

// failedUp runs an up that has to fail, and returns its output.
func (w *world) failedUp(stack string) string {
	w.t.Helper()

	return w.outputOf(func() {
		_, err := w.tryUp(w.t.Context(), stack)
		require.Error(w.t, err)
	})
}

// TestGPUWorker takes a bare host with a GPU to a node that offers it, and both through later changes.
func TestGPUWorker(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	s := gpuStack{Network: w.network, Workers: 1}

	done := w.up(s.yaml(t))
	assert.Contains(t, done.withOp("create"), "Pci rtx4000-mapping")
	w.requireGPUs("one-gpu-1", 1)
	w.requireMapping()

	// Unchanged: nothing to do, to preview or to refresh.
	_, err := w.preview(s.yaml(t), optpreview.ExpectNoChanges())
	require.NoError(t, err, w.output())
	done = w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, done)
	assert.Empty(t, w.refresh(s.yaml(t)))

	// Shared by four pods: only machine configurations change.
	s.TimeSlicing = 4
	done = w.up(s.yaml(t))
	assert.Empty(t, vms(append(done.withOp("update"), done.withOp("replace")...)))
	w.requireGPUs("one-gpu-1", 4)

	// A user's label keeps the device plugin away; the health gate says so.
	w.setGateTimeout("6s")

	s.Labels = "{nvidia.com/device-plugin.config: mine}"
	output := w.failedUp(s.yaml(t))
	assert.Contains(t, output, "one-gpu-1")
	assert.Contains(t, output, "has no pod on the node: compare its nodeSelector")

	w.setGateTimeout("60s")

	s.Labels, s.TimeSlicing = "", 0
	w.up(s.yaml(t))
	w.requireGPUs("one-gpu-1", 1)

	// A mapping that someone changed is repaired, one that someone deleted is created again.
	w.lab.Data.Put(
		datacentre.PCIMappings, "rtx4000", datacentre.Config{"map": "id=10de:1111,node=pve1,path=0000:01:00"},
	)
	done = w.up(s.yaml(t), optup.Refresh())
	assert.Equal(t, []string{"Pci rtx4000-mapping"}, done.withOp("update"))
	w.lab.Data.Delete(datacentre.PCIMappings, "rtx4000")
	assert.Equal(t, []string{"Pci rtx4000-mapping"}, w.refresh(s.yaml(t)).withOp("delete"))
	done = w.up(s.yaml(t))
	assert.Equal(t, []string{"Pci rtx4000-mapping"}, done.withOp("create"))
	assert.Empty(t, vms(append(done.withOp("update"), done.withOp("replace")...)))

	// No GPU worker, no mapping; the host stays prepared.
	s.Workers = 0
	done = w.up(s.yaml(t))
	assert.Contains(t, done.withOp("delete"), "VirtualMachine one-gpu-1-vm")
	assert.Empty(t, w.lab.Data.Records(datacentre.PCIMappings))

	// Meanwhile someone else's machine takes the GPU: the error names the machine, and Proxmox' reason.
	const foreign = 9000

	w.requireTask(
		w.lab.Data.CreateVM(
			labRoot, "pve1", foreign,
			datacentre.Config{"name": "foreign", "memory": "512", "machine": "q35", "hostpci0": "0000:01:00,pcie=1"},
		),
	)
	w.startVM(foreign)

	s.Workers = 1
	output = w.failedUp(s.yaml(t))
	assert.Contains(t, output, "one-gpu-1-vm")
	assert.Contains(t, output, "PCI device '0000:01:00.0' already in use by VMID '9000'")

	w.removeVM(foreign)

	w.up(s.yaml(t), optup.Refresh())
	w.requireGPUs("one-gpu-1", 1)

	w.destroy(s.yaml(t))
	assert.Empty(t, w.lab.Data.Records(datacentre.PCIMappings))
	assert.Empty(t, w.machines())
}

// requireMapping requires the mapping of the stack's GPU, and no other.
func (w *world) requireMapping() {
	mappings := w.lab.Data.Records(datacentre.PCIMappings)
	require.Len(w.t, mappings, 1)

	mapping := mappings["rtx4000"]
	assert.Regexp(
		w.t, `^talos-proxmox-mapping owner=organization/talos-proxmox/lab id=[0-9a-f]{16} \(GPUs\)$`, mapping["description"],
	)

	delete(mapping, "description")

	require.Equal(w.t, datacentre.Config{
		"map": "id=10de:27b0,node=pve1,path=0000:01:00,iommugroup=13,subsystem-id=10de:16fa",
	}, mapping)
}

// firstControlPlane is the VMID of the first control plane.
const firstControlPlane = 2000

// TestGPUControlPlane gives a cluster of one node the GPU, and checks the errors if a link between them is missing.
func TestGPUControlPlane(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	// A node that gets the GPU later is the same machine, and the error names what its image lacks.
	s := gpuStack{Network: w.network, Workers: -1, ControlPlane: ", hosts: [pve1]"}
	w.up(s.yaml(t))

	w.setGateTimeout("30s") // the machine restarts first

	s.ControlPlane = ", gpu: rtx4000"
	before, _ := w.lab.Data.VM(firstControlPlane)
	output := w.failedUp(s.yaml(t))
	assert.Contains(t, output, "one-cp-1: GPU: the machine's image has no NVIDIA kernel modules")

	vm, _ := w.lab.Data.VM(firstControlPlane)
	assert.Equal(t, before.Config["smbios1"], vm.Config["smbios1"])
	assert.Contains(t, vm.Config["hostpci0"], "mapping=rtx4000")
	w.destroy(s.yaml(t))

	// A node that has it from the beginning, first without the device plugin, which a patch removes.
	w.setGateTimeout("30s")

	s.Patches = `["{apiVersion: v1alpha1, kind: KubeInlineManifestConfig, name: nvidia-gpu, $patch: delete}"]`
	output = w.failedUp(s.yaml(t))
	assert.Contains(t, output, `one-cp-1: GPU: the cluster has no RuntimeClass "nvidia"`)

	w.setGateTimeout("60s")

	s.Patches = ""
	w.up(s.yaml(t))
	w.requireGPUs("one-cp-1", 1)
	assert.Equal(t, map[string]int{"one-cp-1": firstControlPlane}, w.machines())

	// The GPU is in another slot than the stack file says: the plan is refused, and the machine, which its host could not
	// start, is left alone.
	require.NoError(
		t, w.lab.Data.ChangeHost("pve1", datacentre.HostChange{MovePCI: [2]string{"0000:01:00", "0000:08:00"}}),
	)
	require.NoError(t, w.lab.Data.RebootHost("pve1"))
	w.awaitHost("pve1")

	output = w.failedUp(s.yaml(t))
	assert.Contains(t, output, "hosts[0].gpus[0].pci: 0000:01:00 is not there on pve1: its NVIDIA GPUs are 0000:08:00.0")
	assert.Contains(t, output, "nothing was changed")

	// With the right slot, the mapping follows and the same machine has the GPU.
	s.PCI = "08:00"
	done := w.up(s.yaml(t), optup.Refresh())
	assert.Contains(t, done.withOp("update"), "Pci rtx4000-mapping")
	assert.Contains(t, done, "Command one-healthy", "the gate checks the GPU again")
	assert.Empty(t, vms(append(done.withOp("replace"), done.withOp("create")...)))
	w.requireGPUs("one-cp-1", 1)
}
