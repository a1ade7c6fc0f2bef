package main

// What a change does, as the page says it.
const (
	none     = "no effect: only new machines get it"
	inPlace  = "in place"
	restart  = "restart"
	replaced = "**replaced, with its data**"
	anew     = "a new template; running machines keep theirs"
	prepared = "the host is prepared again"
	applied  = "in place: the machine configuration is applied again, with a restart if Talos needs one"
	asThere  = "see its fields"
	order    = "none; it only affects the order of a run"
	kept     = "in place: which values are stored as secrets"
)

// machineChanges are those of a VM beside [vmdiff.Fields].
var machineChanges = map[string]string{ //nolint:gochecknoglobals // a table
	"Machine.node":       inPlace + " with `nodePinned`, otherwise none; a machine with a PCI device is " + replaced,
	"Machine.nodePinned": inPlace,
	"Machine.vmid":       replaced,
	"Machine.mac":        restart,
	"Machine.template":   none,
	"Machine.linked":     none,
	"Machine.iso":        inPlace,
	"Machine.diskSize":   inPlace + "; less is refused",
	"Machine.diskPool":   "refused: the provider cannot move a system disk with its EFI disk",
	"Machine.tags":       inPlace,
	"Machine.extraDisks": "adding one: " + inPlace + "; removing one is refused",
	"Machine.extraNics":  restart,
	"Machine.pciDevices": restart,
	"Machine.hostReady":  order,
	"Disk.interface":     "none on a machine that has the disk, unless it is pinned",
	"Disk.pinned":        "none, if `interface` is that of the disk",
	"Disk.added":         "none",
	"Disk.size":          inPlace + "; less is refused",
	"Disk.pool":          restart + ": the machine is off while the disk is copied",
	"NIC.bridge":         restart,
	"NIC.vlan":           restart,
	"NIC.mtu":            restart,
	"NIC.mac":            restart,
	"NIC.address":        applied,
	"PCIDevice.mapping":  restart,
	"PCIDevice.id":       restart,
	"PCIDevice.pcie":     restart,
	"PCIDevice.rombar":   restart,
	"GPU.name":           "only the output changes",
	"GPU.node":           "the health gate runs again",
	"GPU.pci":            restart + " without `mapping`, otherwise the health gate runs again",
	"GPU.generation":     "the health gate runs again",
	"GPU.mapping":        restart,
	"Network.cidr":       applied,
	"Network.gateway":    restart,
	"Network.bridge":     restart,
	"Network.vlan":       restart,
	"Network.mtu":        restart,
	"Network.dns":        restart + "; removing all has no effect",
	"Network.ntp":        applied,
	"Network.dhcp":       restart,
}

// otherChanges are the inputs by what a change does.
var otherChanges = map[string][]string{ //nolint:gochecknoglobals // a table
	"it becomes another machine, and the former one is deleted with its data; use another VMID, MAC and address": {
		"ClusterNode.name",
	},
	"in place: the VM's name; that of the Kubernetes node is in its configuration": {"TalosNodeArgs.name"},

	restart: {"ClusterNode.address", "TalosNodeArgs.address"},
	restart + "; **refused** with a password": {
		"CloudMachineArgs.address", "CloudMachineArgs.searchDomain",
	},
	"in place; cloud-init runs again as on a new machine at the next start":         {"CloudMachineArgs.name"},
	"setting it: none; removing it: the worker gets the changes that it has missed": {"ClusterNode.skip"},

	none: {"CloudMachineArgs.user", "CloudMachineArgs.sshKeys", "CloudMachineArgs.password"},
	"do not change it: it must match the template": {
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
	applied + "; the kubeconfig changes when its certificate is renewed": {
		"TalosClusterArgs.name", "TalosClusterArgs.endpoint", "TalosClusterArgs.vip",
	},
	"the next change of a machine uses it":                      {"TalosClusterArgs.drainTimeoutSeconds", "TalosClusterArgs.healthCheck"},
	"none, unless all control planes have lost their etcd data": {"TalosClusterArgs.bootstrapEmpty"},
	"the next upgrade of Talos uses it": {
		"TalosUpgrades.parallelWorkers", "TalosUpgrades.allowDowngrade", "TalosClusterArgs.upgrades",
		"TalosClusterArgs.backup", "Backup.name", "Backup.directory", "Backup.recipients", "Backup.keep",
	},
	"none after the first run":                                      {"TalosClusterArgs.talosVersion"},
	"existing nodes keep it in their provider ids: create new ones": {"Proxmox.region"},
	"the objects in the cluster are updated": {
		"Proxmox.endpoint", "Proxmox.insecure", "Proxmox.ca", "Proxmox.storageClasses", "StorageClass.name",
		"StorageClass.default",
	},
	"accounts and their ACL entries are created, changed or deleted": {
		"Proxmox.existingRoles", "Proxmox.csi", "Proxmox.cloudController", "Identity.account", "Identity.tokens",
	},
	newVolumes: {
		"StorageClass.datastore", "StorageClass.fsType", "StorageClass.ssd", "StorageClass.reclaimPolicy",
	},
	"Flux is reconfigured; removing it keeps Flux and its workloads ([platform.md](platform.md#flux))": {
		"TalosClusterArgs.gitops", "GitOps.kind", "GitOps.url", "GitOps.ref", "GitOps.path", "GitOps.interval",
		"GitOps.version", "GitOps.chart", "GitOps.chartVersion", "GitOps.digest", "GitOps.timeoutSeconds",
		"GitOps.pullSecret", "GitOps.age", "GitOps.facts", "PullSecret.identity", "PullSecret.knownHosts",
		"PullSecret.username", "PullSecret.password", "PullSecret.ca", "GitOps.verify", "GitOps.singleTenant", "Verify.keys",
		"Verify.issuer", "Verify.subject",
	},
	"the CNI's release is upgraded, and its pods are rolled out ([platform.md](platform.md))": {
		"TalosClusterArgs.cni", "CNI.version", "CNI.chart", "CNI.digest", "CNI.values", "CNI.loadBalancer", "CNI.interfaces",
		"CNI.gatewayApi", "CNI.gatewayApiSource", "CNI.hubble", "CNI.secret", "AddressRange.first", "AddressRange.last",
	},
	"do not change it: machine configurations change, but not the addresses that the cluster uses": {
		"TalosClusterArgs.podCidr", "TalosClusterArgs.serviceCidr",
	},
	"an added node joins; a removed one leaves the cluster and is deleted with its data": {"TalosClusterArgs.nodes"},
	"the cluster refuses the node; create another one":                                   {"ClusterNode.role"},

	"only the output changes": {"ClusterNode.driver", "GPUWorkerArgs.driver", "HostGPU.name"},

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
	"the next build uses it":                                                      {"System.buildMinutes", "System.url", "WindowsMedia.cloudbaseUrl"},
	"the script runs again, and finds the template unchanged":                     {"GoldenTemplateArgs.image"},
	"the script runs on the other host, and fails while the VMID is in use":       {"GoldenTemplateArgs.node"},
	"`image` builds the template, `iso` removes it; running machines keep theirs": {"GoldenTemplateArgs.source"},
	"another file is downloaded": {
		"TalosImageArgs.stores", "TalosImageArgs.checksum", "SystemImageArgs.stores", "SystemImageArgs.checksum",
		"SystemImageArgs.checksumAlgorithm", "ImageStore.node", "ImageStore.datastore",
	},
	"nothing is downloaded: use another resource name for another image": {
		"TalosImageArgs.source", "TalosImageArgs.talos", "SystemImageArgs.fileName",
	},
	"none: an existing file is kept": {"TalosImageArgs.factoryUrl", "SystemImageArgs.url"},

	prepared: {
		"ProxmoxHostPrepArgs.node", "ProxmoxHostPrepArgs.iommu", "ProxmoxHostPrepArgs.zfsArcMaxGiB",
		"ProxmoxHostPrepArgs.repositories", "ProxmoxHostPrepArgs.gpus", "HostGPU.pci",
	},
	prepared + " if they differ from the plan": {"ProxmoxHostPrepArgs.facts"},
	"the check of the host runs again; adding the first machine or removing the last one also prepares the host again": {
		"ProxmoxHostPrepArgs.machines",
	},
	"the step that reboots is added or removed": {"ProxmoxHostPrepArgs.reboot"},
	"with `reboot: whenIdle` the steps that wait for the host run again, otherwise none": {
		"ProxmoxHostPrepArgs.clusters",
	},
	"the host's scripts run again, and find their work done": {
		"HostShell.address", "HostShell.port", "HostShell.user", "HostShell.hostKey", "HostShell.privateKey",
	},
}
