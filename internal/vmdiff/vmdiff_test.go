package vmdiff_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/stacks"
)

const stackFile = `config:
  proxmoxve:endpoint: https://10.0.0.2:8006/
  talos-proxmox:hosts:
    - {name: pve2, address: 10.0.0.2, ssh: {acceptAnyHostKey: true}, gpus: [{name: rtx4000, pci: "01:00", generation: ada}]}
    - {name: pve3, address: 10.0.0.3, ssh: {acceptAnyHostKey: true}, gpus: [{name: rtx4000, pci: "01:00", generation: ada}]}
  talos-proxmox:templates: {talos: {version: v1.12.6}}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.35.0
      network: {cidr: 10.0.1.0/24, gateway: 10.0.1.1}
      controlPlane: {count: 1}
      workers: [{name: general, count: 2, extraDisks: [{sizeGiB: 10}, {sizeGiB: 20}]}]
      gpuWorkers: [{name: gpu, gpu: rtx4000, count: 2}]
`

func planOf(t *testing.T, file string) *spec.Plan {
	t.Helper()

	plan, err := stacks.PlanFile("test", []byte(file))
	require.NoError(t, err)

	return plan
}

// machinesOf returns the machines of a plan after an up.
func machinesOf(plan *spec.Plan) []vmdiff.Machine {
	var machines []vmdiff.Machine

	for _, m := range plan.Members() {
		machines = append(machines, vmdiff.FromPlan(m))
	}

	return machines
}

// newHost sorts before the others, so that placement begins with it.
const newHost = `hosts:
    - {name: pve1, address: 10.0.0.1, ssh: {acceptAnyHostKey: true}, gpus: [{name: rtx4000, pci: "01:00", generation: ada}]}`

func TestJudge(t *testing.T) {
	t.Parallel()

	const renamed = ", which runs. Running machines cannot be renamed: the names of their nodes and etcd members and their MAC addresses depend on it. " +
		"Keep the name; or add new machines with their own firstVmid and firstAddress, and remove the old ones in a later run"

	oneHost := strings.NewReplacer("    - {name: pve3, address: 10.0.0.3, ssh: {acceptAnyHostKey: true}, gpus: [{name: rtx4000, pci: \"01:00\", generation: ada}]}\n",
		"",
		"gpu: rtx4000, count: 2", "gpu: rtx4000, count: 1")
	twoGPUs := strings.NewReplacer("    - {name: pve3, address: 10.0.0.3, ssh: {acceptAnyHostKey: true}, gpus: [{name: rtx4000, pci: \"01:00\", generation: ada}]}\n",
		"",
		`gpus: [{name: rtx4000, pci: "01:00", generation: ada}]`,
		`gpus: [{name: rtx4000, pci: "01:00", generation: ada}, {name: rtx4000, pci: "02:00", generation: ada}]`,
		"gpu: rtx4000, count: 2", "gpu: rtx4000, count: 1")

	raw := strings.NewReplacer(`pci: "01:00", generation: ada`, `pci: "05:00", generation: ada, passthrough: raw`)
	for name, test := range map[string]struct {
		before *strings.Replacer // changes of the stack file for the last run; nil = none
		after  []string          // further changes: old, new, …
		want   []string
	}{
		"nothing changes": {},
		"a pool is renamed": {
			after: []string{"name: general", "name: batch"},
			want: []string{
				`clusters[0].workers[0].name: "batch" creates one-batch-1 with the VMID 3000 of one-general-1` + renamed,
			},
		},
		"a pool is renamed and its VMIDs are new, its addresses are not": {
			after: []string{"name: general", "name: batch, firstVmid: 3100"},
			want: []string{
				`clusters[0].workers[0].name: "batch" creates one-batch-1 with the address 10.0.1.20 of one-general-1` + renamed,
			},
		},
		"a pool is replaced by another one": {
			after: []string{"name: general", "name: batch, firstVmid: 3100, firstAddress: 10.0.1.60"},
		},
		"a pool is renamed, with addresses by DHCP": {
			before: strings.NewReplacer("gateway: 10.0.1.1", "gateway: 10.0.1.1, addressing: dhcp"),
			after:  []string{"name: general", "name: batch, firstVmid: 3100"},
		},
		"a cluster is renamed": {
			after: []string{"name: one", "name: two"},
			want:  []string{`clusters[0].name: "two" creates two-cp-1 with the VMID 2000 of one-cp-1` + renamed},
		},
		"a control plane gets the address of a worker that leaves": {
			after: []string{
				"controlPlane: {count: 1}", "controlPlane: {count: 1, firstAddress: 10.0.1.20}", "name: general",
				"name: batch, firstVmid: 3100, firstAddress: 10.0.1.60",
			},
			want: []string{
				`clusters[0].name: "one" creates one-cp-1 with the address 10.0.1.20 of one-general-1` + renamed,
				`clusters[0].controlPlane.firstAddress: "10.0.1.20" is not 10.0.1.10, by which every step of a run knows one-cp-1; ` +
					"set 10.0.1.10, or recreate the machine: for a worker, lower count and raise it again",
			},
		},
		"machines exchange their VMIDs": {
			after: []string{"count: 2, extraDisks", `count: 2, nodes: {"1": {vmid: 3001}, "2": {vmid: 3000}}, extraDisks`},
			want: []string{
				"clusters[0].workers[0]: one-general-1 would get the VMID 3001 of one-general-2, which has it until the end of the run; " +
					"choose another one, or make the change in two runs",
			},
		},
		"a GPU host is added before the others": {
			after: []string{"hosts:", newHost},
			want: []string{
				"clusters[0].gpuWorkers[0].nodes: one-gpu-1 has its GPU on pve2, and would be recreated on pve1. Set where the machines are, " +
					`in addition to what is set there: nodes: {"1": {host: pve2}, "2": {host: pve3}}`,
			},
		},
		"a GPU host is added, and the machines are pinned": {
			after: []string{
				"hosts:", newHost, "gpu: rtx4000, count: 2",
				`gpu: rtx4000, count: 3, nodes: {"1": {host: pve2}, "2": {host: pve3}}`,
			},
		},
		"a machine is moved to a free GPU by its pin": {
			after: []string{
				"hosts:", newHost, "gpu: rtx4000, count: 2",
				`gpu: rtx4000, count: 2, nodes: {"1": {host: pve1}, "2": {host: pve3}}`,
			},
		},
		"machines exchange their hosts by their pins": {
			after: []string{"gpu: rtx4000, count: 2", `gpu: rtx4000, count: 2, nodes: {"1": {host: pve3}, "2": {host: pve2}}`},
			want: []string{
				`clusters[0].gpuWorkers[0].gpu: "rtx4000" of pve3 would go to one-gpu-1, and one-gpu-2 has it until the end of the run; ` +
					"remove it from one-gpu-2 in a separate run first",
			},
		},
		"the GPU of a host is gone": {
			after: []string{
				`address: 10.0.0.3, ssh: {acceptAnyHostKey: true}, gpus: [{name: rtx4000, pci: "01:00", generation: ada}]`,
				`address: 10.0.0.3`, "hosts:", newHost,
				"gpu: rtx4000, count: 2", `gpu: rtx4000, count: 2, nodes: {"1": {host: pve2}}`,
			},
		},
		"a pool takes the GPUs of another one": {
			after: []string{"name: gpu, gpu", "name: ai, firstVmid: 4100, firstAddress: 10.0.1.60, gpu"},
			want: []string{
				`clusters[0].gpuWorkers[0].gpu: "rtx4000" of pve2 would go to one-ai-1, and one-gpu-1 has it until the end of the run; ` +
					"remove it from one-gpu-1 in a separate run first",
			},
		},
		"a pool takes the free GPU of a host while another pool leaves the other one": {
			before: twoGPUs, after: []string{"name: gpu, gpu", "name: ai, firstVmid: 4100, firstAddress: 10.0.1.60, gpu"},
		},
		"one machine more takes the second GPU of a host": {
			before: oneHost,
			after: []string{
				`[{name: rtx4000, pci: "01:00", generation: ada}]`,
				`[{name: rtx4000, pci: "01:00", generation: ada}, {name: rtx4000, pci: "02:00", generation: ada}]`,
				"gpu: rtx4000, count: 1", "gpu: rtx4000, count: 2",
			},
		},
		"one machine more takes the raw GPU in the same slot of another host": {
			before: strings.NewReplacer(
				`pci: "01:00", generation: ada`, `pci: "05:00", generation: ada, passthrough: raw`, "gpu: rtx4000, count: 2",
				"gpu: rtx4000, count: 1",
			),
			after: []string{"gpu: rtx4000, count: 1", "gpu: rtx4000, count: 2"},
		},
		"a raw GPU is added before that of a machine": {
			before: raw,
			after: []string{
				`[{name: rtx4000, pci: "05:00"`,
				`[{name: rtx4000, pci: "01:00", generation: ada, passthrough: raw}, {name: rtx4000, pci: "05:00"`,
				"gpu: rtx4000, count: 2", "gpu: rtx4000, count: 4",
			},
			want: []string{
				`clusters[0].gpuWorkers[0].gpu: "rtx4000" of pve2 would go to one-gpu-3, and one-gpu-1 has it until the end of the run; ` +
					"give a new GPU its own name, for its own pool",
			},
		},
		"a disk is set elsewhere": {
			after: []string{"{sizeGiB: 20}", "{sizeGiB: 20, interface: virtio5}"},
			want: []string{
				`clusters[0].workers[0].extraDisks[1].interface: "virtio5" is not where one-general-1 has the disk, and nothing re-attaches it; ` +
					"set virtio2, or leave it out",
			},
		},
		"a new disk is set where an old one is": {
			before: strings.NewReplacer("{sizeGiB: 10}", "{sizeGiB: 10, interface: scsi1}"),
			after: []string{
				"{sizeGiB: 10, interface: scsi1}", "{sizeGiB: 10}", "{sizeGiB: 20}",
				"{sizeGiB: 20}, {sizeGiB: 30, interface: scsi1}",
			},
			want: []string{
				`clusters[0].workers[0].extraDisks[2].interface: "scsi1" is where one-general-1 has extraDisks[0]; choose another from virtio0 to virtio15`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			before := stackFile
			if test.before != nil {
				before = test.before.Replace(before)
			}

			after := strings.NewReplacer(test.after...).Replace(before)
			require.Equal(t, len(test.after) > 0, before != after)

			var got []string

			problems, _ := vmdiff.Check(planOf(t, after), machinesOf(planOf(t, before)), nil)
			for _, p := range problems {
				got = append(got, p.String())
			}

			assert.Equal(t, test.want, got)
		})
	}
}

// TestDisksKeepTheirInterfaces: earlier versions used scsiN, which new machines do not.
func TestDisksKeepTheirInterfaces(t *testing.T) {
	t.Parallel()
	before := planOf(
		t,
		strings.NewReplacer(
			"{sizeGiB: 10}, {sizeGiB: 20}", "{sizeGiB: 10, interface: scsi1}", "count: 2, extra", "count: 1, extra",
		).Replace(stackFile),
	)
	after := planOf(t, stackFile)
	problems, warnings := vmdiff.Check(after, machinesOf(before), nil)
	require.Empty(t, problems)
	require.Empty(t, warnings)

	workers := after.Clusters[0].Workers
	places := map[string][]string{}

	for _, n := range workers {
		for _, disk := range n.ExtraDisks {
			places[n.Name] = append(places[n.Name], disk.Interface)
			assert.Equal(t, n.Name == "one-general-1", disk.InterfacePinned, n.Name)
		}
	}

	assert.Equal(
		t, map[string][]string{"one-general-1": {"scsi1", "virtio2"}, "one-general-2": {"virtio1", "virtio2"}}, places,
	)
}

func TestRead(t *testing.T) {
	t.Parallel()

	var outputs map[string]any
	require.NoError(
		t, json.Unmarshal([]byte(`{"name": "one-gpu-1", "vmId": 4000, "nodeName": "pve1", "tags": ["cluster-one", "talos"],
		"cpu": {"cores": 4, "type": "host", "units": 100}, "memory": {"dedicated": 8192}, "onBoot": true,
		"disks": [{"interface": "scsi0", "size": 20}, {"interface": "virtio1", "iothread": true, "cache": "writeback"}],
		"hostpcis": [{"device": "hostpci0", "mapping": "rtx4000", "pcie": true}, {"device": "hostpci1", "id": "0000:05:00"}],
		"usbs": [{"mapping": "zigbee", "host": "", "usb3": true}],
		"initialization": {"ipConfigs": [{"ipv4": {"address": "10.0.1.40/24", "gateway": "10.0.1.1"}}]}}`), &outputs),
	)
	m, err := vmdiff.FromState(outputs)
	require.NoError(t, err)
	assert.Equal(t, vmdiff.Machine{
		Name: "one-gpu-1", Cluster: "one", Host: "pve1", VMID: 4000, Address: "10.0.1.40", Prefix: 24, Gateway: "10.0.1.1",
		Fields: map[string]any{
			"cpu.cores": 4, "cpu.type": "host", "cpu.numa": false, "cpu.units": 100, "cpu.affinity": "", "memory.hugepages": "",
			"memory.dedicated": 8192, "agent.enabled": false, "onBoot": true, "startup.order": 0, "poolId": "",
		},
		Tags: []string{"cluster-one", "talos"},
		Disks: []vmdiff.Disk{{Interface: "scsi0", SizeGiB: 20}, {
			Interface: "virtio1", Options: vmdiff.DiskOptions{IOThread: true, Cache: "writeback"},
		}},
		Devices: []vmdiff.Device{{Mapping: "rtx4000"}, {PCI: "0000:05:00"}, {Mapping: "zigbee", USB: true}},
	}, m)

	m, err = vmdiff.FromState(
		map[string]any{
			"initialization": map[string]any{"ipConfigs": []any{map[string]any{"ipv4": map[string]any{"address": "dhcp"}}}},
		},
	)
	require.NoError(t, err)

	m.Fields = nil
	assert.Equal(t, vmdiff.Machine{}, m)

	_, err = vmdiff.FromState(map[string]any{"vmId": "text"})
	require.ErrorContains(t, err, "unable to read a VM of the stack's state")

	_, err = vmdiff.FromState(map[string]any{"vmId": 4000, "cpu": map[string]any{"cores": "[secret]"}})
	require.ErrorContains(t, err, "unable to read cpu.cores of VM 4000 in the stack's state")
}
