package vmdiff_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

const (
	workers = "clusters[0].workers[0]"
	apiAway = "cluster one has one control plane: its API is unavailable while one-cp-1 restarts, for about 40 s"
	manyCPs = "controlPlane: {count: 3}"
	// firstAway is about a cluster without a virtual IP or an endpoint of its own.
	firstAway = "the API of cluster one is unavailable: for about 40 s while one-cp-1 restarts, which alone has its endpoint " +
		"https://10.0.1.10:6443"
)

// TestEffectsOfChanges changes the stack file of running machines.
func TestEffectsOfChanges(t *testing.T) {
	t.Parallel()

	const (
		some    = "one-general-1, one-general-2 "
		all     = "one-cp-1, one-general-1, one-general-2, one-gpu-1, one-gpu-2 "
		onePool = "workers: [{name: general, count: 2, "
		gateway = "gateway: 10.0.1.1"
	)
	for name, test := range map[string]struct {
		before   []string // changes of the stack file that ran: old, new, …
		after    []string
		problems []string
		warnings []string
	}{
		"more memory": {
			after:    []string{onePool, onePool + "memoryMiB: 8192, "},
			warnings: []string{some + "restart: memory 4096 → 8192 MiB (" + workers + ".memoryMiB)"},
		},
		"many machines are one line": {
			before: []string{"general, count: 2", "general, count: 12"},
			after:  []string{"workers: [{name", "workers: [{numa: true, cores: 4, name"},
			warnings: []string{
				"one-general-1 … one-general-12 restart: cores 2 → 4 (" + workers + ".cores); NUMA false → true (" + workers +
					".numa)",
			},
		},
		"its own machine": {
			after:    []string{onePool, onePool + `nodes: {"2": {cores: 4}}, `},
			warnings: []string{"one-general-2 restarts: cores 2 → 4 (" + workers + ".nodes.2.cores)"},
		},
		"the only control plane": {
			after:    []string{"controlPlane: {count: 1}", "controlPlane: {count: 1, cores: 4}"},
			warnings: []string{"one-cp-1 restarts: cores 2 → 4 (clusters[0].controlPlane.cores)", apiAway},
		},
		"all control planes, by a key that a machine can override": {
			before: []string{"controlPlane: {count: 1}", manyCPs},
			after:  []string{manyCPs, "controlPlane: {count: 3, cores: 4}"},
			warnings: []string{
				"one-cp-1 … one-cp-3 restart: cores 2 → 4 (clusters[0].controlPlane.cores)",
				firstAway,
			},
		},
		"all control planes, by a key of the pool": {
			before: []string{"controlPlane: {count: 1}", manyCPs},
			after:  []string{manyCPs, "controlPlane: {count: 3, cpuType: x86-64-v2-AES}"},
			warnings: []string{
				"one-cp-1 … one-cp-3 restart: processor type host → x86-64-v2-AES (clusters[0].controlPlane.cpuType)",
				firstAway,
			},
		},
		"one control plane of three": {
			before:   []string{"controlPlane: {count: 1}", manyCPs},
			after:    []string{manyCPs, `controlPlane: {count: 3, nodes: {"1": {cores: 4}}}`},
			warnings: []string{"one-cp-1 restarts: cores 2 → 4 (clusters[0].controlPlane.nodes.1.cores)", firstAway},
		},
		"all control planes of a virtual IP": {
			before: []string{"controlPlane: {count: 1}", manyCPs, gateway, gateway + ", vip: 10.0.1.5"},
			after:  []string{manyCPs, "controlPlane: {count: 3, cores: 4}"},
			warnings: []string{
				"one-cp-1 … one-cp-3 restart: cores 2 → 4 (clusters[0].controlPlane.cores)",
				"the API of cluster one is unavailable: for about 2 s when the control plane that has the virtual IP 10.0.1.5 restarts " +
					"(one-cp-1 … one-cp-3 do, one at a time)",
			},
		},
		"all control planes behind a load balancer": {
			before: []string{"controlPlane: {count: 1}", "endpoint: {host: k8s.example.org}\n      " + manyCPs},
			after:  []string{manyCPs, "controlPlane: {count: 3, cores: 4}"},
			warnings: []string{
				"one-cp-1 … one-cp-3 restart: cores 2 → 4 (clusters[0].controlPlane.cores)",
				"the API of cluster one stays available: if a load balancer at https://k8s.example.org:6443 sends no request to a control plane " +
					"that restarts (one-cp-1 … one-cp-3 do, one at a time)",
			},
		},
		"control planes other than the one with the endpoint": {
			before:   []string{"controlPlane: {count: 1}", manyCPs},
			after:    []string{manyCPs, `controlPlane: {count: 3, nodes: {"2": {cores: 4}}}`},
			warnings: []string{"one-cp-2 restarts: cores 2 → 4 (clusters[0].controlPlane.nodes.2.cores)"},
		},
		"another virtual IP": {
			before: []string{gateway, gateway + ", vip: 10.0.1.5", "controlPlane: {", "endpoint: {host: k8s.example.org}\n      controlPlane: {"},
			after:  []string{"vip: 10.0.1.5", "vip: 10.0.1.6"},
			warnings: []string{
				"the API of cluster one moves: from the virtual IP 10.0.1.5 to 10.0.1.6 (clusters[0].network.vip). Control planes get their " +
					"new configuration one after the other: the new address answers after the first of them, the former one until the last",
			},
		},
		"the cluster's network": {
			after: []string{"gateway: 10.0.1.1", "gateway: 10.0.1.1, vlan: 7, mtu: 1400, dns: [1.1.1.1]"},
			warnings: []string{
				all +
					"restart: VLAN 0 → 7 (clusters[0].network.vlan); MTU 0 → 1400 (clusters[0].network.mtu); name servers none → 1.1.1.1 (clusters[0].network.dns)",
				apiAway,
			},
		},
		"Proxmox' firewall": {
			after:    []string{"workers: [{name", "firewall: {proxmox: {}}\n      workers: [{name"},
			warnings: []string{all + "restart: Proxmox' firewall on a network device false → true (clusters[0].firewall.proxmox)", apiAway},
		},
		"no more name servers": {
			before: []string{"gateway: 10.0.1.1", "gateway: 10.0.1.1, dns: [1.1.1.1]"}, after: []string{", dns: [1.1.1.1]", ""},
		},
		"other addresses": {
			after: []string{onePool, onePool + "firstAddress: 10.0.1.30, "},
			problems: []string{
				workers + `.firstAddress: "10.0.1.30" is not 10.0.1.20, by which every step of a run knows one-general-1; ` +
					"set 10.0.1.20, or recreate the machine: for a worker, lower count and raise it again",
			},
		},
		"addresses by DHCP": {
			after:    []string{"gateway: 10.0.1.1", "gateway: 10.0.1.1, addressing: dhcp"},
			warnings: []string{all + "restart: another kind of addressing (clusters[0].network.addressing)", apiAway},
		},
		"another card": {
			after:    []string{onePool, onePool + "extraNICs: [{bridge: vmbr1}], "},
			warnings: []string{some + "restart: a network card is added (" + workers + ".extraNICs)"},
		},
		"another VLAN of another card": {
			before:   []string{onePool, onePool + "extraNICs: [{bridge: vmbr1}], "},
			after:    []string{"{bridge: vmbr1}", "{bridge: vmbr1, vlan: 7}"},
			warnings: []string{some + "restart: VLAN 0 → 7 (" + workers + ".extraNICs[0].vlan)"},
		},
		"a newer Talos": {
			after:    []string{"version: v1.12.6", "version: v1.13.2"},
			warnings: []string{all + "are upgraded in turn: Talos v1.12.6 → v1.13.2 (templates.talos.version)", apiAway},
		},
		"a newer Talos, and more memory": {
			after: []string{"version: v1.12.6", "version: v1.13.2", onePool, onePool + "memoryMiB: 8192, "},
			warnings: []string{
				"one-cp-1, one-gpu-1, one-gpu-2 are upgraded in turn: Talos v1.12.6 → v1.13.2 (templates.talos.version)",
				some + "restart: memory 4096 → 8192 MiB (" + workers + ".memoryMiB); Talos v1.12.6 → v1.13.2 (templates.talos.version)",
				apiAway,
			},
		},
		"a Talos that is too new": {
			before: []string{"version: v1.12.6", "version: v1.12.3"},
			after:  []string{"version: v1.12.3", "version: v1.14.4"},
			problems: []string{
				"templates.talos.version: v1.14.4 cannot follow Talos v1.12.3, which one-cp-1 runs: it is 2 minor versions newer, " +
					"and Talos is upgraded by one at a time; set the latest patch of v1.13 first",
			},
		},
		"an older Talos": {
			after: []string{"version: v1.12.6", "version: v1.12.5"},
			problems: []string{
				"templates.talos.version: v1.12.5 cannot follow Talos v1.12.6, which one-cp-1 runs: it is older, and downgrades must be " +
					"allowed; set the running version, or talos.allowDowngrade: true of the cluster",
			},
		},
		"an older Talos, allowed": {
			after:    []string{"version: v1.12.6", "version: v1.12.5", "kubernetesVersion", "talos: {allowDowngrade: true}\n      kubernetesVersion"},
			warnings: []string{all + "are upgraded in turn: Talos v1.12.6 → v1.12.5 (templates.talos.version)", apiAway},
		},
		"the guest agent": {
			after:    []string{"version: v1.12.6", "version: v1.12.6, extensions: [qemu-guest-agent]"},
			warnings: []string{all + "restart: guest agent false → true (templates.talos.extensions)", apiAway},
		},
		"other VMIDs": {
			after:    []string{onePool, onePool + "firstVmid: 3100, "},
			warnings: []string{some + "are replaced, with their data: another VMID (" + workers + ".firstVmid)"},
		},
		"changes in place are not reported": {
			after: []string{
				onePool, onePool + "diskGiB: 80, tags: [a], onBoot: false, startupOrder: 3, resourcePool: a, ", "{sizeGiB: 10}",
				"{sizeGiB: 12}", "{sizeGiB: 20}", "{sizeGiB: 20}, {sizeGiB: 5}",
			},
		},
		"a disk moves": {
			after: []string{"{sizeGiB: 10}", "{sizeGiB: 10, datastore: local-zfs}"},
			warnings: []string{
				some + "restart: disk virtio1 local-lvm → local-zfs, off while it is copied (" + workers +
					".extraDisks[0].datastore)",
			},
		},
		"options of a disk": {
			after: []string{"{sizeGiB: 10}", "{sizeGiB: 10, iothread: true, discard: false, cache: directsync, aio: native}"},
			warnings: []string{
				some + "restart: disk virtio1 I/O thread false → true (" + workers + ".extraDisks[0].iothread); disk virtio1 discard " +
					"on → ignore (" + workers + ".extraDisks[0].discard); disk virtio1 cache none → directsync (" + workers +
					".extraDisks[0].cache); disk virtio1 aio io_uring → native (" + workers + ".extraDisks[0].aio)",
			},
		},
		"queues of network devices": {
			after:    []string{onePool, onePool + "nicQueues: 4, extraNICs: [{bridge: vmbr1}], "},
			warnings: []string{some + "restart: queues of network devices 0 → 4 (" + workers + ".nicQueues); a network card is added (" + workers + ".extraNICs)"},
		},
		"disks shrink": {
			after: []string{onePool, onePool + "diskGiB: 30, ", "{sizeGiB: 20}", "{sizeGiB: 15}"},
			problems: []string{
				workers +
					".diskGiB: 30 is less than the 40 GiB that one-general-1 has at scsi0, and disks cannot shrink; use at least 40",
				workers +
					".extraDisks[1].sizeGiB: 15 is less than the 20 GiB that one-general-1 has at virtio2, and disks cannot shrink; use at least 20",
			},
		},
		"the system disk moves": {
			after: []string{onePool, onePool + "datastore: local-zfs, "},
			problems: []string{
				workers +
					`.datastore: "local-zfs" is not local-lvm, where one-general-1 has its system disk, and no run can move that with its EFI disk; ` +
					"set local-lvm, or recreate the machine: for a worker, lower count and raise it again",
			},
		},
		"the system disk's datastore is misspelt": {
			after: []string{onePool, onePool + "datastore: local-lvn, "},
			problems: []string{
				workers + `.datastore: "local-lvn" is not local-lvm (did you mean that?), ` +
					"where one-general-1 has its system disk, and no run can move that with its EFI disk; " +
					"set local-lvm, or recreate the machine: for a worker, lower count and raise it again",
			},
		},
		"a disk is removed": {
			after: []string{"{sizeGiB: 10}, {sizeGiB: 20}", "{sizeGiB: 10}"},
			problems: []string{
				workers +
					".extraDisks: disk virtio2 (20 GiB on local-lvm) of one-general-1 would have to be removed, and no run removes a disk from a machine; " +
					"set it again, or recreate the machine: for a worker, lower count and raise it again",
			},
		},
		"a linked clone moves": {
			before: []string{
				"kubernetesVersion", "clone: linked\n      kubernetesVersion", onePool, onePool + `nodes: {"1": {host: pve2}}, `,
			},
			after: []string{`"1": {host: pve2}`, `"1": {host: pve3}`},
			problems: []string{
				workers +
					".nodes.1.host: pve3 is not pve2, where one-general-1 is a linked clone: its disk depends on the template's there, and Proxmox " +
					"cannot migrate it; set pve2, or remove the machine and add it again",
			},
		},
		"a disk becomes a volume": {
			after: []string{"{sizeGiB: 10}", "{sizeGiB: 10, volume: data}"},
			problems: []string{
				workers + `.extraDisks[0].volume: "data" is not what one-general-1 has at virtio1 (a disk that is deleted with it), and no ` +
					"run makes a volume of a disk, a disk of a volume, or renames one; restore it, or add a disk with it and copy the data",
			},
		},
		"a volume becomes a disk": {
			before: []string{"{sizeGiB: 10}", "{sizeGiB: 10, volume: data}"},
			after:  []string{"{sizeGiB: 10, volume: data}", "{sizeGiB: 10}"},
			problems: []string{
				workers + `.extraDisks[0].volume: "" is not what one-general-1 has at virtio1 (volume data), and no run makes a volume ` +
					"of a disk, a disk of a volume, or renames one; restore it, or add a disk with it and copy the data",
			},
		},
		"a volume grows": {
			before: []string{"{sizeGiB: 10}", "{sizeGiB: 10, volume: data}"},
			after:  []string{"{sizeGiB: 10, volume: data}", "{sizeGiB: 12, volume: data}"},
		},
		"a volume moves": {
			before: []string{"{sizeGiB: 10}", "{sizeGiB: 10, volume: data}"},
			after:  []string{"{sizeGiB: 10, volume: data}", "{sizeGiB: 10, volume: data, datastore: local-zfs}"},
			problems: []string{
				workers + `.extraDisks[0].datastore: "local-zfs" is not local-lvm, where volume data of one-general-1 is, and no run moves ` +
					"a volume; set local-lvm, or add a disk with another volume and copy the data",
			},
		},
		"a machine with a volume moves": {
			before: []string{"{sizeGiB: 10}", "{sizeGiB: 10, volume: data}", onePool, onePool + `nodes: {"1": {host: pve2}}, `},
			after:  []string{`"1": {host: pve2}`, `"1": {host: pve3}`},
			problems: []string{
				workers + ".nodes.1.host: pve3 is not pve2, where one-general-1 has volumes that outlive it (data), and Proxmox does not " +
					"migrate those; set pve2. With volumes on shared datastores only, migrate the machine in Proxmox, refresh, and then set " +
					"its new host",
			},
		},
		"a machine with a volume goes": {
			before: []string{"{sizeGiB: 10}", "{sizeGiB: 10, volume: data}"},
			after:  []string{"count: 2, extraDisks", "count: 1, extraDisks"},
			warnings: []string{
				"one-general-2 leaves cluster one: it is drained, wiped, and deleted with its data",
				"the volumes of one-general-2 stay, with their data: data (docs/machines.md#volumes-that-outlive-machines)",
			},
		},
		"machines with volumes are replaced": {
			before: []string{"{sizeGiB: 10}", "{sizeGiB: 10, volume: data}"},
			after:  []string{onePool, onePool + "firstVmid: 3100, "},
			warnings: []string{
				some + "are replaced, with their data: another VMID (" + workers + ".firstVmid)",
				"the next one-general-1 gets the volumes of this one: data", "the next one-general-2 gets the volumes of this one: data",
			},
		},
		"a machine with a GPU moves": {
			before: []string{"gpu: rtx4000, count: 2", "gpu: rtx4000, count: 1"},
			after:  []string{"gpu: rtx4000, count: 1", `gpu: rtx4000, count: 1, nodes: {"1": {host: pve3}}`},
			warnings: []string{
				"one-gpu-1 is replaced, with its data: host pve2 → pve3, with a GPU (clusters[0].gpuWorkers[0].nodes.1.host)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			before := strings.NewReplacer(test.before...).Replace(stackFile)
			after := strings.NewReplacer(test.after...).Replace(before)
			require.NotEqual(t, before, after)
			ran := planOf(t, before)
			problems, warnings := vmdiff.Check(planOf(t, after), machinesOf(ran), vmdiff.CreationSettings(ran))

			assert.Equal(t, strings.Join(test.problems, "\n"), problems.Error())
			assert.Equal(t, test.warnings, warnings)

			problems, warnings = vmdiff.Check(planOf(t, before), machinesOf(planOf(t, before)), nil)
			assert.Empty(t, problems, "nothing changes")
			assert.Empty(t, warnings, "nothing changes")
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()

	for want, names := range map[string][]string{
		"a-1":             {"a-1"},
		"a-1, a-2":        {"a-1", "a-2"},
		"a-1 … a-3":       {"a-1", "a-2", "a-3"},
		"a-9 … a-11, b-1": {"a-9", "a-10", "a-11", "b-1"},
		"a-1, a-3, b":     {"a-1", "a-3", "b"},
	} {
		assert.Equal(t, want, vmdiff.JoinNames(names))
	}
}

func TestUnfollowed(t *testing.T) {
	t.Parallel()
	before := planOf(t, stackFile)
	after := planOf(
		t,
		strings.NewReplacer(
			"kubernetesVersion: v1.35.0", "clone: linked\n      kubernetesVersion: v1.35.0",
		).Replace(stackFile),
	)
	assert.Empty(t, vmdiff.IgnoredChanges(before, vmdiff.CreationSettings(before), machinesOf(before)))
	assert.Empty(t, vmdiff.IgnoredChanges(after, nil, machinesOf(before)), "an earlier version recorded nothing")
	assert.Empty(t, vmdiff.IgnoredChanges(after, vmdiff.CreationSettings(before), nil), "no machine runs")

	assert.Equal(t, []string{
		"clusters[0].clone: full → linked does not affect running machines (one-cp-1, one-general-1, one-general-2, one-gpu-1, one-gpu-2), " +
			"only new ones; to recreate a worker, lower count and raise it again",
	}, vmdiff.IgnoredChanges(after, vmdiff.CreationSettings(before), machinesOf(before)))
}

func TestClustersKeepTheirNetworks(t *testing.T) {
	t.Parallel()
	before := planOf(t, stackFile)
	after := planOf(
		t, strings.Replace(stackFile, "kubernetesVersion", "podCidr: 10.200.0.0/16\n      kubernetesVersion", 1),
	)
	problems, _ := vmdiff.Check(after, machinesOf(before), vmdiff.CreationSettings(before))
	require.Len(t, problems, 1)
	assert.Equal(
		t,
		`clusters[0].podCidr: "10.200.0.0/16" is not the network that cluster one was created with, which cannot change: `+
			"its addresses are in use; set 10.244.0.0/16",
		problems[0].String(),
	)

	problems, _ = vmdiff.Check(after, machinesOf(before), nil)
	assert.Empty(t, problems, "an earlier version recorded nothing")
	problems, _ = vmdiff.Check(after, nil, vmdiff.CreationSettings(before))
	assert.Empty(t, problems, "a cluster that is gone is recreated")
}

// TestClustersKeepTheirFamilies: Kubernetes gives a running node no second network for pods. Another IPv6 address is a
// restart.
func TestClustersKeepTheirFamilies(t *testing.T) {
	t.Parallel()

	const key = "ipv6: {cidr: 'fd00:1::/64'}"

	single := planOf(t, stackFile)
	dual := planOf(t, strings.Replace(stackFile, "gateway: 10.0.1.1", "gateway: 10.0.1.1, "+key, 1))

	for name, test := range map[string]struct {
		before, after *spec.Plan
		want          string
	}{
		"IPv6 is added": {single, dual, "clusters[0].network.ipv6: is set, and cluster one was created without it: Kubernetes gives " +
			"its running nodes no IPv6 network for pods; remove it, and create another cluster with it"},
		"IPv6 is removed": {dual, single, "clusters[0].network.ipv6: is missing, and cluster one was created with it: the IPv6 " +
			"addresses of its pods and services are in use; set it again"},
		"another network of services": {
			dual, planOf(t, strings.NewReplacer("gateway: 10.0.1.1", "gateway: 10.0.1.1, "+key,
				"kubernetesVersion", "serviceCidrIPv6: fd00:10:43::/112\n      kubernetesVersion").Replace(stackFile)),
			`clusters[0].serviceCidrIPv6: "fd00:10:43::/112" is not the network that cluster one was created with, which cannot ` +
				"change: its addresses are in use; set fd00:10:96::/112",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			problems, _ := vmdiff.Check(test.after, machinesOf(test.before), vmdiff.CreationSettings(test.before))
			require.Len(t, problems, 1)
			assert.Equal(t, test.want, problems[0].String())
		})
	}

	problems, warnings := vmdiff.Check(dual, machinesOf(single), nil)
	assert.Empty(t, problems, "an earlier version recorded nothing")
	assert.NotEmpty(t, warnings)

	moved := planOf(t, strings.Replace(stackFile, "gateway: 10.0.1.1", "gateway: 10.0.1.1, ipv6: {cidr: 'fd00:2::/64'}", 1))
	problems, warnings = vmdiff.Check(moved, machinesOf(dual), vmdiff.CreationSettings(dual))
	require.Empty(t, problems)
	require.NotEmpty(t, warnings)
	assert.Contains(t, warnings[0], "IPv6 address fd00:1::a/64 → fd00:2::a/64")

	swapped := planOf(t, strings.NewReplacer("gateway: 10.0.1.1", "gateway: 10.0.1.1, "+key, "count: 2, extraDisks",
		`count: 2, nodes: {"1": {addressIPv6: "fd00:1::15"}, "2": {addressIPv6: "fd00:1::14"}}, extraDisks`).Replace(stackFile))
	problems, _ = vmdiff.Check(swapped, machinesOf(dual), vmdiff.CreationSettings(dual))
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].String(), "one-general-1 would get the address fd00:1::15 of one-general-2")
}

// TestAnotherEndpoint is a warning: the endpoint is the issuer of tokens.
func TestAnotherEndpoint(t *testing.T) {
	t.Parallel()

	before := planOf(t, stackFile)
	after := planOf(
		t, strings.Replace(stackFile, "kubernetesVersion", "endpoint: {host: k8s.example.org}\n      kubernetesVersion", 1),
	)

	problems, warnings := vmdiff.Check(after, machinesOf(before), vmdiff.CreationSettings(before))
	require.Empty(t, problems)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "clusters[0].endpoint: "+before.Clusters[0].Endpoint+" → https://k8s.example.org:6443: "+
		"fetch kubeconfigs again")

	for name, settings := range map[string]map[string]string{
		"an earlier version recorded nothing": nil, "it was changed before": vmdiff.CreationSettings(after),
	} {
		_, warnings = vmdiff.Check(after, machinesOf(before), settings)
		assert.Empty(t, warnings, name)
	}

	_, warnings = vmdiff.Check(after, nil, vmdiff.CreationSettings(before))
	assert.Empty(t, warnings, "no machine runs")
}

// TestNodesKeepTheirRegion: a region can be added or removed, but not changed.
func TestNodesKeepTheirRegion(t *testing.T) {
	t.Parallel()

	in := func(region string) *spec.Plan {
		return planOf(
			t, strings.Replace(stackFile, "kubernetesVersion", "proxmox: {region: "+region+"}\n      kubernetesVersion", 1),
		)
	}
	before := in("home")

	problems, _ := vmdiff.Check(in("away"), machinesOf(before), vmdiff.CreationSettings(before))
	require.Len(t, problems, 1)
	assert.Equal(
		t,
		`clusters[0].proxmox.region: "away" is not the region in the provider IDs of the nodes of cluster one, `+
			"which cannot change; set home",
		problems[0].String(),
	)

	none := planOf(t, stackFile)
	problems, _ = vmdiff.Check(before, machinesOf(none), vmdiff.CreationSettings(none))
	assert.Empty(t, problems)
	problems, _ = vmdiff.Check(none, machinesOf(before), vmdiff.CreationSettings(before))
	assert.Empty(t, problems)
}

// TestNewDisksAvoidInterfacesOfVolumes: the CSI plugin uses the first free one of scsi1 to scsi29 of a running machine.
func TestNewDisksAvoidInterfacesOfVolumes(t *testing.T) {
	t.Parallel()

	with := func(proxmox, disks string) *spec.Plan {
		text := strings.Replace(stackFile, "kubernetesVersion", proxmox+"kubernetesVersion", 1)

		return planOf(t, strings.Replace(text, "{sizeGiB: 20}", disks, 1))
	}

	const csi = "proxmox: {region: home, csi: {storageClasses: [{name: a, datastore: local-lvm}]}}\n      "

	const more = "{sizeGiB: 20}, {sizeGiB: 5, interface: scsi1}"

	before := with("", "{sizeGiB: 20}")

	problems, _ := vmdiff.Check(with("", more), machinesOf(before), vmdiff.CreationSettings(before))
	assert.Empty(t, problems, "nothing attaches volumes")
	problems, _ = vmdiff.Check(with(csi, more), machinesOf(before), vmdiff.CreationSettings(before))
	require.Len(t, problems, 1)
	assert.Equal(t, `clusters[0].workers[0].extraDisks[2].interface: "scsi1" is where the Proxmox CSI plugin may have attached a `+
		"volume to one-general-1 since: a disk there would take the volume's place; leave interface out, or choose one from "+
		"virtio0 to virtio15", problems[0].String())

	there := with("", more)
	problems, _ = vmdiff.Check(with(csi, more), machinesOf(there), vmdiff.CreationSettings(there))
	assert.Empty(t, problems, "the plugin skips an occupied interface")
}

// TestSharedVolumesKeepTheirSize: the provider resizes only volumes that belong to the VM alone.
func TestSharedVolumesKeepTheirSize(t *testing.T) {
	t.Parallel()

	for path, refused := range map[string]bool{
		"vm-7-disk-0": false, "7/vm-7-disk-0.raw": false, "base-900-disk-0/vm-7-disk-0": true,
	} {
		disk := map[string]any{"interface": "scsi0", "size": 20, "pathInDatastore": path}
		old, err := vmdiff.FromState(map[string]any{"vmId": 7, "disks": []any{disk}})
		require.NoError(t, err)

		wanted := old
		wanted.Disks = []vmdiff.Disk{{Interface: "scsi0", SizeGiB: 30}}
		changes := vmdiff.Compare(old, wanted)
		require.Len(t, changes, 1)
		assert.Equal(t, refused, changes[0].Effect == vmdiff.Impossible, path)
	}
}

// TestVolumesOfTheState are recognized by their names, and grow with their own command.
func TestVolumesOfTheState(t *testing.T) {
	t.Parallel()

	for _, path := range []string{"vm-999999999-9f86-one-a-1-data.raw", "999999999/vm-999999999-9f86-one-a-1-data.raw"} {
		disk := map[string]any{"interface": "virtio1", "size": 20, "pathInDatastore": path}
		old, err := vmdiff.FromState(map[string]any{"vmId": 7, "disks": []any{disk}})
		require.NoError(t, err)
		require.Equal(t, "data", old.Disks[0].Volume)

		wanted := old
		wanted.Disks = []vmdiff.Disk{{Interface: "virtio1", SizeGiB: 30, Volume: "data"}}
		changes := vmdiff.Compare(old, wanted)
		require.Len(t, changes, 1)
		assert.Equal(t, vmdiff.InPlace, changes[0].Effect, path)
	}
}

// TestAnotherSchematicIsAnUpgrade if the running one is known.
func TestAnotherSchematicIsAnUpgrade(t *testing.T) {
	t.Parallel()

	for running, want := range map[string]vmdiff.Effect{
		"": vmdiff.Nothing, "376567": vmdiff.Upgrade, "ce4c98": vmdiff.Nothing,
	} {
		effect := vmdiff.MachineChanges{
			Changes: vmdiff.Compare(vmdiff.Machine{Schematic: running}, vmdiff.Machine{Schematic: "ce4c98"}),
		}
		assert.Equal(t, want, effect.Effect(), running)
	}
}

// TestAnUpgradeOfTheOnlyControlPlane makes its API unavailable, as every restart does.
func TestAnUpgradeOfTheOnlyControlPlane(t *testing.T) {
	t.Parallel()

	upgrades := []vmdiff.MachineChanges{{
		Machine: vmdiff.Machine{Name: "one-cp-1", Cluster: "one", ControlPlane: true},
		Changes: []vmdiff.Change{{Effect: vmdiff.Upgrade, What: "Talos v1.14.3 → v1.14.4"}},
	}}
	assert.Equal(t, []string{"one-cp-1 is upgraded: Talos v1.14.3 → v1.14.4", apiAway},
		vmdiff.Describe(upgrades, map[string]vmdiff.API{"one": {ControlPlanes: 1}}, nil))
	assert.Equal(t, []string{"one-cp-1 is upgraded: Talos v1.14.3 → v1.14.4"},
		vmdiff.Describe(upgrades, map[string]vmdiff.API{"one": {ControlPlanes: 3}}, nil))
}

// TestProtectionIsDecidedAtCreation: none of it reaches a machine that runs.
func TestProtectionIsDecidedAtCreation(t *testing.T) {
	t.Parallel()

	const (
		others   = ", or create machines with it in a pool of their own and remove these in a later run (docs/encryption.md)"
		remedy   = "restore it" + others
		hardened = "security: hardened\n      firewall: {}\n      "
		leave    = "set encryption: {state: none, ephemeral: none}" + others
	)

	with := func(template, cluster string) *spec.Plan {
		text := strings.Replace(stackFile, "kubernetesVersion", cluster+"kubernetesVersion", 1)

		return planOf(t, strings.Replace(text, "talos: {version: v1.12.6", "talos: {version: v1.12.6"+template, 1))
	}
	plain, encrypted := with("", ""), with("", "encryption: {state: nodeID, ephemeral: nodeID}\n      ")

	for name, c := range map[string]struct {
		before, after *spec.Plan
		want          []string
	}{
		"nothing changes": {encrypted, encrypted, nil},
		"encryption": {plain, encrypted, []string{
			"clusters[0].encryption: does not open EPHEMERAL, STATE of one-cp-1 " +
				"(it has none; planned, patches included: EPHEMERAL nodeID, STATE nodeID): Talos encrypts a volume only when it creates it; " + leave,
		}},
		"a running cluster that is to be hardened": {plain, with("", hardened), []string{
			"clusters[0].encryption: does not open EPHEMERAL, STATE of one-cp-1 " +
				"(it has none; planned, patches included: EPHEMERAL nodeID, STATE nodeID): Talos encrypts a volume only when it creates it; " + leave,
		}},
		"a running cluster that is to be hardened without it": {
			plain, with("", hardened+"encryption: {state: none, ephemeral: none}\n      "), nil,
		},
		"no encryption": {encrypted, plain, []string{
			"clusters[0].controlPlane.encryption: does not open EPHEMERAL, STATE of one-cp-1 " +
				"(it has EPHEMERAL nodeID, STATE nodeID; planned, patches included: none): Talos encrypts a volume only when it creates it; " + remedy,
		}},
		"Secure Boot": {with(", source: iso", ""), with(", source: iso, secureBoot: true", ""), []string{
			"templates.talos.secureBoot: true is not what one-cp-1 was created with; " + remedy,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			problems, _ := vmdiff.Check(c.after, machinesOf(c.before), vmdiff.CreationSettings(c.before))

			var texts []string
			for _, p := range problems {
				texts = append(texts, p.String())
			}

			if c.want == nil {
				assert.Empty(t, texts)

				return
			}

			assert.Subset(t, texts, c.want)
		})
	}

	old, err := vmdiff.FromState(map[string]any{"vmId": 7, "tpmState": map[string]any{"version": "v2.0"}})
	require.NoError(t, err)

	wanted := old
	wanted.TPM = false
	changes := vmdiff.Compare(old, wanted)
	require.Len(t, changes, 1)
	assert.Equal(t, vmdiff.Impossible, changes[0].Effect)
	assert.Equal(t, "tpm", changes[0].Key)
}
