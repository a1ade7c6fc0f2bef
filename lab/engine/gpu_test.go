package engine_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/internal/scripttest"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/stacks"
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
	ControlPlane string // more of the control plane, as YAML
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

// gateWithin bounds the health gate, which otherwise waits for a quarter of an hour.
func (w *world) gateWithin(limit string) { w.verbsWithin(limit, "wait") }

// verbsWithin bounds the waits of verbs of talosops.
func (w *world) verbsWithin(limit string, verbs ...string) {
	w.t.Helper()

	path := filepath.Join(w.dir, "talosops-"+limit)
	script := fmt.Sprintf("#!/bin/sh\ncase \"$1\" in %[2]s) exec %[1]q \"$@\" --timeout %[3]s;; *) exec %[1]q \"$@\";; esac\n",
		talosops, strings.Join(verbs, "|"), limit)
	scripttest.Program(w.t, path, script)

	w.options.TalosOps = path
}

// requireOffers checks by the exported kubeconfig how many GPUs a node offers to pods.
func requireOffers(t *testing.T, outputs auto.OutputMap, node string, want int64) {
	t.Helper()

	found, err := kubernetesOf(t, outputs).CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)

	offered := found.Status.Allocatable["nvidia.com/gpu"]
	require.Equal(t, want, offered.Value())
}

// kubernetesOf is a client of cluster one by its exported kubeconfig.
func kubernetesOf(t *testing.T, outputs auto.OutputMap) kubernetes.Interface {
	t.Helper()

	return clientOf(t, output(t, outputs, stacks.Kubeconfigs, "one"))
}

func clientOf(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	require.NoError(t, err)

	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	return client
}

// fails runs an up that has to fail, and returns what it said.
func (w *world) fails(stack string) string {
	w.t.Helper()

	before := len(w.said())
	_, err := w.tryUp(w.t.Context(), stack)
	require.Error(w.t, err)

	return w.said()[before:]
}

// TestGPUWorker takes a bare host with a card to a node that offers it, and through what happens to both afterwards.
func TestGPUWorker(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.gateWithin("60s")

	s := gpuStack{Network: w.network, Workers: 1}

	done := w.up(s.yaml(t))
	assert.Contains(t, done.named("create"), "Pci rtx4000-mapping")
	requireOffers(t, w.outputs(), "one-gpu-1", 1)
	mappings := w.lab.Data.Records(datacentre.Mappings)
	require.Len(t, mappings, 1)

	mapping := mappings["rtx4000"]
	assert.Regexp(
		t, `^talos-proxmox-mapping owner=organization/talos-proxmox/lab id=[0-9a-f]{16} \(GPUs\)$`, mapping["description"],
	)

	delete(mapping, "description")

	require.Equal(t, datacentre.Config{
		"map": "id=10de:27b0,node=pve1,path=0000:01:00,iommugroup=13,subsystem-id=10de:16fa",
	}, mapping)

	// Unchanged: nothing to do, to preview or to refresh.
	_, err := w.preview(s.yaml(t), optpreview.ExpectNoChanges())
	require.NoError(t, err, w.said())
	done = w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, done)
	assert.Empty(t, w.refresh(s.yaml(t)))

	// Shared by four pods: no machine is touched but for its configuration.
	s.TimeSlicing = 4
	done = w.up(s.yaml(t))
	assert.Empty(t, vms(append(done.named("update"), done.named("replace")...)))
	requireOffers(t, w.outputs(), "one-gpu-1", 4)

	// A label of the user's own keeps the device plugin away; the gate says so.
	w.gateWithin("6s")

	s.Labels = "{nvidia.com/device-plugin.config: mine}"
	said := w.fails(s.yaml(t))
	assert.Contains(t, said, "one-gpu-1")
	assert.Contains(t, said, "has no pod on the node: compare its nodeSelector")

	w.gateWithin("60s")

	s.Labels, s.TimeSlicing = "", 0
	w.up(s.yaml(t))
	requireOffers(t, w.outputs(), "one-gpu-1", 1)

	// A mapping that someone changed is put right, one that someone deleted is made again.
	w.lab.Data.Put(
		datacentre.Mappings, "rtx4000", datacentre.Config{"map": "id=10de:1111,node=pve1,path=0000:01:00"},
	)
	done = w.up(s.yaml(t), optup.Refresh())
	assert.Equal(t, []string{"Pci rtx4000-mapping"}, done.named("update"))
	w.lab.Data.Delete(datacentre.Mappings, "rtx4000")
	assert.Equal(t, []string{"Pci rtx4000-mapping"}, w.refresh(s.yaml(t)).named("delete"))
	done = w.up(s.yaml(t))
	assert.Equal(t, []string{"Pci rtx4000-mapping"}, done.named("create"))
	assert.Empty(t, vms(append(done.named("update"), done.named("replace")...)))

	// No GPU worker, no mapping; the host stays prepared.
	s.Workers = 0
	done = w.up(s.yaml(t))
	assert.Contains(t, done.named("delete"), "VirtualMachine one-gpu-1-vm")
	assert.Empty(t, w.lab.Data.Records(datacentre.Mappings))

	// Meanwhile a machine of someone else's takes the card: the one that does not start is named, with Proxmox' reason.
	const foreign = 9000

	w.do(
		w.lab.Data.CreateVM(
			"root@pam", "pve1", foreign,
			datacentre.Config{"name": "foreign", "memory": "512", "machine": "q35", "hostpci0": "0000:01:00,pcie=1"},
		),
	)
	w.do(w.lab.Data.Start("root@pam", "pve1", foreign))

	s.Workers = 1
	said = w.fails(s.yaml(t))
	assert.Contains(t, said, "one-gpu-1-vm")
	assert.Contains(t, said, "PCI device '0000:01:00.0' already in use by VMID '9000'")

	w.do(w.lab.Data.Stop("root@pam", "pve1", foreign))
	w.do(w.lab.Data.DestroyVM("root@pam", "pve1", foreign, nil))

	w.up(s.yaml(t), optup.Refresh())
	requireOffers(t, w.outputs(), "one-gpu-1", 1)

	w.destroy(s.yaml(t))
	assert.Empty(t, w.lab.Data.Records(datacentre.Mappings))
	assert.Empty(t, w.machines())
}

// firstControlPlane is the VMID of the first control plane.
const firstControlPlane = 2000

// TestGPUControlPlane is a cluster of one node that has the card, and what is said where a link between them is
// missing.
func TestGPUControlPlane(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.gateWithin("60s")

	// A node that gets the card later is the same machine, and what its image lacks is named.
	s := gpuStack{Network: w.network, Workers: -1, ControlPlane: ", hosts: [pve1]"}
	w.up(s.yaml(t))

	w.gateWithin("30s") // the machine starts again first

	s.ControlPlane = ", gpu: rtx4000"
	made, _ := w.lab.Data.VM(firstControlPlane)
	said := w.fails(s.yaml(t))
	assert.Contains(t, said, "one-cp-1: GPU: the machine's image has no NVIDIA kernel modules")

	vm, _ := w.lab.Data.VM(firstControlPlane)
	assert.Equal(t, made.Config["smbios1"], vm.Config["smbios1"])
	assert.Contains(t, vm.Config["hostpci0"], "mapping=rtx4000")
	w.destroy(s.yaml(t))

	// One that had it from the beginning, without the device plugin, which a patch of the user's removes, and with
	// it.
	w.gateWithin("30s")

	s.Patches = `["cluster: {inlineManifests: [{name: nvidia-gpu, $patch: delete}]}"]`
	said = w.fails(s.yaml(t))
	assert.Contains(t, said, `one-cp-1: GPU: the cluster has no RuntimeClass "nvidia"`)

	w.gateWithin("60s")

	s.Patches = ""
	w.up(s.yaml(t))
	requireOffers(t, w.outputs(), "one-cp-1", 1)
	assert.Equal(t, map[string]int{"one-cp-1": firstControlPlane}, w.machines())

	// The card is in another slot than the stack says: the plan is refused, and the machine, which its host could not
	// start, is left alone.
	require.NoError(
		t, w.lab.Data.ChangeHost("pve1", datacentre.HostChange{MovePCI: [2]string{"0000:01:00", "0000:08:00"}}),
	)
	require.NoError(t, w.lab.Data.RebootHost("pve1"))
	w.awaitHost("pve1")

	said = w.fails(s.yaml(t))
	assert.Contains(t, said, "hosts[0].gpus[0].pci: 0000:01:00 is not there on pve1: its NVIDIA GPUs are 0000:08:00.0")
	assert.Contains(t, said, "nothing was changed")

	// Where it is set, the mapping follows and the same machine has it.
	s.PCI = "08:00"
	done := w.up(s.yaml(t), optup.Refresh())
	assert.Contains(t, done.named("update"), "Pci rtx4000-mapping")
	assert.Contains(t, done, "Command one-healthy", "the node is asked for its GPU again")
	assert.Empty(t, vms(append(done.named("replace"), done.named("create")...)))
	requireOffers(t, w.outputs(), "one-cp-1", 1)
}
