package main

// What a change does, as the page says it.
const (
	none     = "no effect: only new machines get it"
	inPlace  = "in place"
	restart  = "restart"
	replaced = "**replaced, with its data**"
	anew     = "a new template; running machines keep theirs"
	prepared = "the host is prepared again"
	applied  = "in place: the machine configuration is applied again, with a restart where Talos needs one"
	asThere  = "as its parts"
	order    = "nothing but the order of a run"
	kept     = "in place: what is kept of it"
)

// machineChanges are those of a VM beside [vmdiff.Fields].
var machineChanges = map[string]string{ //nolint:gochecknoglobals // a table
	"Machine.node":       inPlace + " with `nodePinned`, otherwise nothing; a machine with a PCI device is " + replaced,
	"Machine.nodePinned": inPlace,
	"Machine.vmid":       replaced,
	"Machine.mac":        restart,
	"Machine.template":   none,
	"Machine.linked":     none,
	"Machine.iso":        inPlace,
	"Machine.diskSize":   inPlace + "; less is refused",
	"Machine.diskPool":   "refused: no run moves a system disk with its EFI disk",
	"Machine.tags":       inPlace,
	"Machine.extraDisks": "one more: " + inPlace + "; one less is refused",
	"Machine.extraNics":  restart,
	"Machine.pciDevices": restart,
	"Machine.hostReady":  order,
	"Disk.interface":     "nothing on a machine that has the disk, unless it is pinned",
	"Disk.pinned":        "nothing while `interface` is where the disk is",
	"Disk.added":         "nothing",
	"Disk.size":          inPlace + "; less is refused",
	"Disk.pool":          restart + ": off while it is copied",
	"NIC.bridge":         restart,
	"NIC.vlan":           restart,
	"NIC.mtu":            restart,
	"NIC.mac":            restart,
	"NIC.address":        applied,
	"PCIDevice.mapping":  restart,
	"PCIDevice.id":       restart,
	"PCIDevice.pcie":     restart,
	"PCIDevice.rombar":   restart,
	"GPU.name":           "the output alone",
	"GPU.node":           "the health gate runs again",
	"GPU.pci":            restart + " without `mapping`, otherwise the health gate runs again",
	"GPU.generation":     "the health gate runs again",
	"GPU.mapping":        restart,
	"Network.cidr":       applied,
	"Network.gateway":    restart,
	"Network.bridge":     restart,
	"Network.vlan":       restart,
	"Network.mtu":        restart,
	"Network.dns":        restart + "; none: nothing",
	"Network.ntp":        applied,
	"Network.dhcp":       restart,
}

// otherChanges are the inputs by what a change does.
var otherChanges = map[string][]string{ //nolint:gochecknoglobals // a table
	"another machine: the former one is deleted with its data; give it another VMID, MAC and address": {
		"ClusterNode.name",
	},
	"in place: the VM's name; the Kubernetes node's is in its configuration": {"TalosNodeArgs.name"},

	restart: {"ClusterNode.address", "TalosNodeArgs.address"},
	restart + "; **refused** with a password": {
		"CloudMachineArgs.address", "CloudMachineArgs.searchDomain",
	},
	"in place; cloud-init takes the machine for a new one at its next start": {"CloudMachineArgs.name"},
	"nothing; once it is taken out, the worker gets what it has missed":      {"ClusterNode.skip"},

	none: {"CloudMachineArgs.user", "CloudMachineArgs.sshKeys", "CloudMachineArgs.password"},
	"never change it: the template decides": {
		"Hardware.osType", "Hardware.machine", "Hardware.bios", "Hardware.systemDisk", "Hardware.cloudInitDrive",
		"Hardware.display", "Hardware.secureBoot",
	},
	inPlace: {
		"CloudMachineArgs.about", "CloudMachineArgs.protect", "TalosNodeArgs.protect", "TalosClusterArgs.protect",
		"TalosNodeArgs.cluster", "TalosNodeArgs.role", "PCIMappingArgs.devices", "MappedDevice.pci", "MappedDevice.id",
		"MappedDevice.subsystem", "MappedDevice.group", "MappedDevice.node",
	},
	kept: {
		"TalosImageArgs.secret", "TalosClusterArgs.secret",
		"ClusterNode.secret",
	},
	asThere: {
		"CloudMachineArgs.machine", "CloudMachineArgs.network", "CloudMachineArgs.hardware",
		"TalosNodeArgs.machine", "TalosNodeArgs.network", "TalosNodeArgs.client", "GPUWorkerArgs.node", "GPUWorkerArgs.gpus",
		"TalosClusterArgs.proxmox", "ClusterNode.machine", "ClusterNode.gpus", "TalosClusterArgs.network",
		"GoldenTemplateArgs.talos", "GoldenTemplateArgs.system",
		"System.windows", "ClusterNode.talos", "GoldenTemplateArgs.shell", "ProxmoxHostPrepArgs.shell",
	},
	order: {
		"CloudMachineArgs.after",
		"TalosNodeArgs.answersWithin", "TalosImageArgs.settled", "SystemImageArgs.settled", "TalosClusterArgs.schematics", "PCIMappingArgs.hostsReady",
		"ProxmoxHostPrepArgs.rebootAfter",
	},
	applied: {
		"TalosNodeArgs.configuration", "TalosNodeArgs.patches", "ClusterNode.labels", "ClusterNode.taints",
		"ClusterNode.zone",
		"ClusterNode.patches", "ClusterNode.timeSlicing", "ClusterNode.dedicated", "TalosClusterArgs.patches",
		"TalosClusterArgs.allowSchedulingOnControlPlanes", "TalosClusterArgs.gpuOperator", "TalosClusterArgs.factoryUrl",
		"TalosClient.caCertificate", "TalosClient.clientCertificate", "TalosClient.clientKey",
	},
	applied + "; nodes are not drained ([upgrades.md](upgrades.md))": {"TalosClusterArgs.kubernetesVersion"},
	applied + "; the kubeconfig follows when its certificate is renewed": {
		"TalosClusterArgs.name", "TalosClusterArgs.endpoint", "TalosClusterArgs.vip",
	},
	"the next change of a machine":                                    {"TalosClusterArgs.drainTimeoutSeconds", "TalosClusterArgs.healthCheck"},
	"nothing, unless all control planes have lost their data of etcd": {"TalosClusterArgs.bootstrapEmpty"},
	"the next upgrade of Talos": {
		"TalosUpgrades.parallelWorkers", "TalosUpgrades.allowDowngrade", "TalosClusterArgs.upgrades",
		"TalosClusterArgs.backup", "Backup.name", "Backup.directory", "Backup.recipients", "Backup.keep",
	},
	"nothing after the first run":                                            {"TalosClusterArgs.talosVersion"},
	"nodes keep the one that they have in their provider ids: make new ones": {"Proxmox.region"},
	"the cluster gets it": {
		"Proxmox.endpoint", "Proxmox.insecure", "Proxmox.ca", "Proxmox.storageClasses", "StorageClass.name",
		"StorageClass.default",
	},
	"accounts and their rules come, go and follow": {
		"Proxmox.existingRoles", "Proxmox.csi", "Proxmox.cloudController", "Identity.account", "Identity.tokens",
	},
	newVolumes: {
		"StorageClass.datastore", "StorageClass.fsType", "StorageClass.ssd", "StorageClass.reclaimPolicy",
	},
	"Flux follows; what is left out stays in the cluster ([platform.md](platform.md#flux))": {
		"TalosClusterArgs.gitops", "GitOps.kind", "GitOps.url", "GitOps.ref", "GitOps.path", "GitOps.interval",
		"GitOps.version", "GitOps.chart", "GitOps.chartVersion", "GitOps.digest", "GitOps.timeoutSeconds",
		"GitOps.pullSecret", "GitOps.age", "GitOps.facts", "PullSecret.identity", "PullSecret.knownHosts",
		"PullSecret.username", "PullSecret.password", "PullSecret.ca", "GitOps.verify", "GitOps.singleTenant", "Verify.keys",
		"Verify.issuer", "Verify.subject",
	},
	"the release of the CNI is upgraded, and its pods rolled out ([platform.md](platform.md))": {
		"TalosClusterArgs.cni", "CNI.version", "CNI.chart", "CNI.digest", "CNI.values", "CNI.loadBalancer", "CNI.interfaces",
		"CNI.gatewayApi", "CNI.gatewayApiSource", "CNI.hubble", "CNI.secret", "AddressRange.first", "AddressRange.last",
	},
	"never change it: machine configurations follow, the addresses that the cluster uses do not": {
		"TalosClusterArgs.podCidr", "TalosClusterArgs.serviceCidr",
	},
	"one more joins, one less leaves the cluster and is deleted with its data": {"TalosClusterArgs.nodes"},
	"the node is refused by its cluster; make another":                         {"ClusterNode.role"},
	"the output alone": {"ClusterNode.driver", "GPUWorkerArgs.driver", "HostGPU.name"},

	"running nodes are upgraded, one after the other ([upgrades.md](upgrades.md))": {
		"Talos.version", "Talos.platform", "Talos.extensions", "Talos.kernelArgs",
	},
	anew: {
		"GoldenTemplateArgs.vmid", "GoldenTemplateArgs.name", "GoldenTemplateArgs.imageDatastore",
		"GoldenTemplateArgs.datastore", "GoldenTemplateArgs.bridge", "GoldenTemplateArgs.cores",
		"GoldenTemplateArgs.memory", "GoldenTemplateArgs.diskSize", "System.os", "System.release", "System.build",
		"System.checksum", "System.packages", "System.user", "System.sshKeys", "System.timezone", "System.locale",
		"System.secureBoot", "System.vlan", "WindowsMedia.virtioIso", "WindowsMedia.virtioChecksum",
		"WindowsMedia.cloudbaseChecksum", "WindowsMedia.edition",
	},
	"the next build": {"System.buildMinutes", "System.url", "WindowsMedia.cloudbaseUrl"},
	"the script runs again, and finds the template as it is":                      {"GoldenTemplateArgs.image"},
	"the script runs on the other host, and fails while the VMID is taken":        {"GoldenTemplateArgs.node"},
	"`image` builds the template, `iso` removes it; running machines keep theirs": {"GoldenTemplateArgs.source"},
	"another file is downloaded": {
		"TalosImageArgs.stores", "TalosImageArgs.checksum", "SystemImageArgs.stores", "SystemImageArgs.checksum",
		"SystemImageArgs.checksumAlgorithm", "ImageStore.node", "ImageStore.datastore",
	},
	"nothing is downloaded: give another image another resource name": {
		"TalosImageArgs.source", "TalosImageArgs.talos", "SystemImageArgs.fileName",
	},
	"nothing: a file that is there stays": {"TalosImageArgs.factoryUrl", "SystemImageArgs.url"},

	prepared: {
		"ProxmoxHostPrepArgs.node", "ProxmoxHostPrepArgs.iommu", "ProxmoxHostPrepArgs.zfsArcMaxGiB",
		"ProxmoxHostPrepArgs.repositories", "ProxmoxHostPrepArgs.gpus", "HostGPU.pci",
	},
	prepared + " where they differ from the plan": {"ProxmoxHostPrepArgs.facts"},
	"the check of the host runs again; the first machine, or the last one less, prepares the host again as well": {
		"ProxmoxHostPrepArgs.machines",
	},
	"the step that reboots comes or goes": {"ProxmoxHostPrepArgs.reboot"},
	"with `reboot: whenIdle` the steps that wait for the host run again, otherwise nothing": {
		"ProxmoxHostPrepArgs.clusters",
	},
	"the host's scripts run again, and find their work done": {
		"HostShell.address", "HostShell.port", "HostShell.user", "HostShell.hostKey", "HostShell.privateKey",
	},
}
