package main

// What a change does, as the page says it.
const (
	none     = "no effect: only new machines get it"
	inPlace  = "in place"
	restart  = "restart"
	replaced = "**replaced, with its data**"
	anew     = "a new template; machines that run keep theirs"
	prepared = "the host is prepared again"
	applied  = "in place: the machine configuration is applied again, with a restart where Talos needs one"
	asThere  = "as its parts"
	order    = "nothing but the order of a run"
	kept     = "in place: what is kept of it"
)

// machineChanges are those of a VM, which [running.EffectOf] judges by the VM's properties.
var machineChanges = map[string]string{ //nolint:gochecknoglobals // a table
	"Machine.node":         inPlace + " with `nodePinned`, otherwise nothing; a machine with a PCI device is " + replaced,
	"Machine.nodePinned":   inPlace,
	"Machine.vmid":         replaced,
	"Machine.mac":          restart,
	"Machine.template":     none,
	"Machine.linked":       none,
	"Machine.iso":          inPlace,
	"Machine.agent":        restart,
	"Machine.cores":        restart,
	"Machine.memory":       restart,
	"Machine.diskSize":     inPlace + "; less is refused",
	"Machine.diskPool":     "refused: no run moves a system disk with its EFI disk",
	"Machine.cpuType":      restart,
	"Machine.numa":         restart,
	"Machine.onBoot":       inPlace,
	"Machine.startupOrder": inPlace,
	"Machine.tags":         inPlace,
	"Machine.pool":         inPlace,
	"Machine.extraDisks":   "one more: " + inPlace + "; one less is refused",
	"Machine.extraNics":    restart,
	"Machine.pciDevices":   restart,
	"Machine.hostReady":    order,
	"Disk.interface":       "nothing on a machine that has the disk, unless it is pinned",
	"Disk.pinned":          "nothing while `interface` is where the disk is",
	"Disk.added":           "nothing",
	"Disk.size":            inPlace + "; less is refused",
	"Disk.pool":            restart + ": off while it is copied",
	"NIC.bridge":           restart,
	"NIC.vlan":             restart,
	"NIC.mtu":              restart,
	"NIC.mac":              restart,
	"NIC.address":          applied,
	"PCIDevice.mapping":    restart,
	"PCIDevice.id":         restart,
	"PCIDevice.pcie":       restart,
	"PCIDevice.rombar":     restart,
	"GPU.name":             "the output alone",
	"GPU.node":             "the health gate runs again",
	"GPU.pci":              restart + " without `mapping`, otherwise the health gate runs again",
	"GPU.generation":       "the health gate runs again",
	"GPU.mapping":          restart,
	"Network.cidr":         applied,
	"Network.gateway":      restart,
	"Network.bridge":       restart,
	"Network.vlan":         restart,
	"Network.mtu":          restart,
	"Network.dns":          restart + "; none: nothing",
	"Network.ntp":          applied,
	"Network.dhcp":         restart,
}

// otherChanges are the inputs by what a change does.
var otherChanges = map[string][]string{ //nolint:gochecknoglobals // a table
	replaced: {"ClusterNode.name", "TalosNodeArgs.name"},
	restart:  {"ClusterNode.address", "TalosNodeArgs.address"},
	inPlace: {
		"TalosNodeArgs.cluster", "TalosNodeArgs.role", "PCIMappingArgs.devices", "MappedDevice.pci", "MappedDevice.id",
		"MappedDevice.subsystem",
		"MappedDevice.group", "MappedDevice.node",
	},
	kept: {
		"TalosNodeArgs.protect", "TalosClusterArgs.protect", "TalosImageArgs.secret", "TalosClusterArgs.secret",
		"ClusterNode.secret",
	},
	asThere: {
		"TalosNodeArgs.machine", "TalosNodeArgs.network", "TalosNodeArgs.client", "GPUWorkerArgs.node", "GPUWorkerArgs.gpus",
		"ClusterNode.machine",
		"ClusterNode.gpus", "TalosClusterArgs.network", "TalosImageArgs.talos", "GoldenTemplateArgs.talos",
		"ClusterNode.talos",
		"GoldenTemplateArgs.shell", "ProxmoxHostPrepArgs.shell",
	},
	order: {
		"TalosNodeArgs.answersWithin", "TalosImageArgs.settled", "PCIMappingArgs.hostsReady",
		"ProxmoxHostPrepArgs.rebootAfter",
		"ProxmoxHostPrepArgs.clusters", "ProxmoxHostPrepArgs.facts",
	},
	applied: {
		"TalosNodeArgs.configuration", "TalosNodeArgs.patches", "ClusterNode.labels", "ClusterNode.taints",
		"ClusterNode.patches",
		"ClusterNode.timeSlicing", "ClusterNode.dedicated", "TalosClusterArgs.patches", "TalosClusterArgs.vip",
		"TalosClusterArgs.endpoint",
		"TalosClusterArgs.allowSchedulingOnControlPlanes", "TalosClusterArgs.gpuOperator", "TalosClusterArgs.factoryUrl",
		"TalosClient.caCertificate", "TalosClient.clientCertificate", "TalosClient.clientKey",
	},
	"the output alone": {"ClusterNode.driver", "GPUWorkerArgs.driver"},
	"a machine that runs is upgraded manually, a new one gets it ([upgrades.md](upgrades.md))": {
		"TalosClusterArgs.kubernetesVersion", "Talos.version", "Talos.platform", "Talos.extensions", "Talos.kernelArgs",
	},
	"nothing after the first run": {
		"TalosClusterArgs.talosVersion", "TalosClusterArgs.podCidr", "TalosClusterArgs.serviceCidr",
	},
	"one more joins, one less is deleted with its data": {"TalosClusterArgs.nodes"},
	"the kubeconfig and talosconfig are written again":  {"TalosClusterArgs.name"},
	"the node is refused by its cluster; make another":  {"ClusterNode.role"},
	anew: {
		"GoldenTemplateArgs.node", "GoldenTemplateArgs.vmid", "GoldenTemplateArgs.name", "GoldenTemplateArgs.source",
		"GoldenTemplateArgs.image",
		"GoldenTemplateArgs.imageDatastore", "GoldenTemplateArgs.datastore", "GoldenTemplateArgs.bridge",
		"GoldenTemplateArgs.cores",
		"GoldenTemplateArgs.memory", "GoldenTemplateArgs.diskSize",
	},
	"another file is downloaded": {
		"TalosImageArgs.source", "TalosImageArgs.stores", "TalosImageArgs.checksum", "ImageStore.node",
		"ImageStore.datastore",
	},
	"nothing: a file that is there stays": {"TalosImageArgs.factoryUrl"},
	prepared: {
		"ProxmoxHostPrepArgs.node", "ProxmoxHostPrepArgs.iommu", "ProxmoxHostPrepArgs.zfsArcMaxGiB",
		"ProxmoxHostPrepArgs.repositories",
		"ProxmoxHostPrepArgs.gpus", "HostGPU.name", "HostGPU.pci",
	},
	"the check of the host runs again":    {"ProxmoxHostPrepArgs.machines"},
	"the step that reboots comes or goes": {"ProxmoxHostPrepArgs.reboot"},
	"the host's scripts run again, and find their work done": {
		"HostShell.address", "HostShell.port", "HostShell.user", "HostShell.hostKey", "HostShell.privateKey",
	},
}
