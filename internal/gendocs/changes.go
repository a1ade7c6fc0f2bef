package main

// change is a change of a key in the baseline stack file, whose effect the rules of the program determine.
type change struct {
	when string // which change of the key; empty = any
	to   any
	path string // in the stack file; empty = that of the key
}

// checkedChanges are the changes whose effect is computed, in addition to those of [vmdiff.Fields].
var checkedChanges = map[string][]change{
	"VMIDRangesConfig.controlPlanes": {{to: "2100-2199"}},
	"VMIDRangesConfig.workers":       {{to: "3100-3999"}},
	"VMIDRangesConfig.gpuWorkers":    {{to: "4100-4199"}},
	"VMIDRangesConfig.machines":      {{to: "5100-5199"}},

	"GPUConfig.passthrough": {{to: "raw"}},

	"TemplateConfig.version": {
		{to: "v1.14.4"}, {when: "an older one, or more than one minor version newer", to: "v1.14.2"},
	},
	"TemplateConfig.source":     {{when: "`iso`", to: "iso"}},
	"TemplateConfig.datastore":  {{when: "if the pool sets none", to: "local-zfs"}},
	"TemplateConfig.secureBoot": {{to: true}},
	"TemplateConfig.extensions": {{when: "`qemu-guest-agent`", to: []any{"qemu-guest-agent"}}},

	"ClusterConfig.name": {{to: "other"}},
	"ClusterConfig.kubernetesVersion": {
		{when: "an older one, or more than one minor version newer", to: "v1.35.0"},
	},
	"ClusterConfig.clone":           {{to: "linked"}},
	"ClusterConfig.podCidr":         {{to: "10.200.0.0/16"}},
	"ClusterConfig.serviceCidr":     {{to: "10.112.0.0/12"}},
	"ClusterConfig.podCidrIPv6":     {{to: "fd00:10:42::/56"}},
	"ClusterConfig.serviceCidrIPv6": {{to: "fd00:10:43::/112"}},

	"ClusterConfig.encryption":   {{to: map[string]any{"state": "nodeID"}}},
	pool + ".encryption":         {{to: map[string]any{"ephemeral": "nodeID"}}},
	pool + ".tpm":                {{to: true}},
	"EncryptionConfig.state":     {{to: "nodeID"}},
	"EncryptionConfig.ephemeral": {{to: "nodeID"}},

	"FirewallConfig.proxmox": {{
		when: "adding or removing it", to: map[string]any{"proxmox": map[string]any{}}, path: "clusters.0.firewall",
	}},

	"NetworkConfig.cidr": {{
		to: map[string]any{
			"cidr": "10.0.2.0/24", "gateway": "10.0.2.1", "dns": []any{"1.1.1.1"}, "ipv6": map[string]any{"cidr": "fd00:1::/64"},
		}, path: "clusters.0.network",
	}},
	"NetworkConfig.ipv6": {
		{when: "adding or removing it", to: nil}, {when: "another", to: map[string]any{"cidr": "fd00:2::/64"}},
	},
	"IPv6NetworkConfig.cidr":    {{to: "fd00:2::/64"}},
	"IPv6NetworkConfig.gateway": {{to: "fd00:1::1"}},
	"NetworkConfig.gateway":     {{to: "10.0.1.254"}},
	"NetworkConfig.bridge":      {{to: "vmbr2"}},
	"NetworkConfig.vlan":        {{to: 7}},
	"NetworkConfig.mtu":         {{to: 1400}},
	"NetworkConfig.dns":         {{to: []any{"8.8.8.8"}}},
	"NetworkConfig.addressing":  {{to: "dhcp"}},

	"PoolNetworkConfig.cidr": {{
		to: map[string]any{
			"cidr": "10.0.2.0/24", "gateway": "10.0.2.1", "ipv6": map[string]any{"cidr": "fd00:2::/64"},
		}, path: poolPath + "network",
	}},
	"PoolNetworkConfig.ipv6":    {{to: map[string]any{"cidr": "fd00:2::/64"}}},
	"PoolNetworkConfig.gateway": {{to: "10.0.1.254"}},
	"PoolNetworkConfig.bridge":  {{to: "vmbr2"}},
	"PoolNetworkConfig.vlan":    {{to: 7}},
	"PoolNetworkConfig.mtu":     {{to: 1400}},
	"PoolNetworkConfig.dns":     {{to: []any{"8.8.8.8"}}},

	pool + ".template":     {{to: "other"}},
	pool + ".diskGiB":      {{when: "more", to: 80}, {when: "less", to: 30}},
	pool + ".datastore":    {{to: "local-zfs"}},
	pool + ".firstVmid":    {{to: 3100}},
	pool + ".firstAddress": {{to: "10.0.1.60"}},
	pool + ".addresses":    {{to: []any{"10.0.1.60", "10.0.1.61"}}},
	pool + ".tags":         {{to: []any{"a"}}},
	pool + ".extraDisks": {
		{when: "adding one", to: []any{map[string]any{"sizeGiB": 10, "interface": "virtio1"}, map[string]any{"sizeGiB": 10}}},
		{when: "removing one", to: []any{}},
	},
	pool + ".extraNICs": {{to: []any{}}},
	pool + ".nicQueues": {{to: 4}},

	"ControlPlaneConfig.gpu": {{to: map[string]any{"count": 1, "gpu": "rtx4000"}, path: "clusters.0.controlPlane"}},
	"WorkersConfig.name":     {{to: "other"}},
	"GPUWorkersConfig.name":  {{to: "other"}},
	"GPUWorkersConfig.gpu":   {{to: "rtx4000"}},
	"MachinesConfig.name":    {{to: "other"}},
	"MachinesConfig.clone":   {{to: "linked"}},
	"MachinesConfig.user":    {{to: "ops"}},
	"MachinesConfig.sshKeys": {
		{to: []any{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"}},
	},

	"MachineNetworkConfig.cidr": {{
		to: map[string]any{"cidr": "10.0.0.0/16", "gateway": "10.0.1.1", "dns": []any{"1.1.1.1"}}, path: "machines.0.network",
	}},
	"MachineNetworkConfig.gateway":      {{to: "10.0.1.254"}},
	"MachineNetworkConfig.ipv6":         {{to: map[string]any{"cidr": "fd00:1::/64"}}},
	"MachineNetworkConfig.bridge":       {{to: "vmbr2"}},
	"MachineNetworkConfig.vlan":         {{to: 7}},
	"MachineNetworkConfig.mtu":          {{to: 1400}},
	"MachineNetworkConfig.dns":          {{to: []any{"8.8.8.8"}}},
	"MachineNetworkConfig.searchDomain": {{to: "example.org"}},
	"MachineNetworkConfig.addressing": {{to: map[string]any{
		"name": "web", "template": "debian", "network": map[string]any{"addressing": "dhcp", "dns": []any{"1.1.1.1"}},
	}, path: "machines.0"}},

	"NodeConfig.host":    {{to: "pve2"}},
	"NodeConfig.devices": {{to: []any{"nic"}}},
	"NodeConfig.vmid":    {{to: 3050}},
	"NodeConfig.mac":     {{to: "02:00:00:00:00:02"}},
	"NodeConfig.address": {{to: "10.0.1.70"}},

	"NodeConfig.addressIPv6": {{to: "fd00:1::70"}},

	"NodeConfig.diskGiB":   {{when: "more", to: 80}, {when: "less", to: 30}},
	"DiskConfig.sizeGiB":   {{when: "more", to: 20}, {when: "less", to: 5}},
	"DiskConfig.datastore": {{to: "local-zfs"}},
	"DiskConfig.interface": {{to: "virtio5"}},
	"DiskConfig.iothread":  {{to: true}},
	"DiskConfig.discard":   {{to: false}},
	"DiskConfig.cache":     {{to: "writeback"}},
	"DiskConfig.aio":       {{to: "native"}},
	"DiskConfig.volume":    {{to: "data"}},
	"NICConfig.bridge":     {{to: "vmbr2"}},
	"NICConfig.vlan":       {{to: 7}},
	"NICConfig.mtu":        {{to: 1400}},
}
