package main

// What becomes of what runs.
const (
	configuration = "machine configurations follow in place"
	addresses     = "machines are reached at the new address afterwards; a control plane's is in certificates and in etcd as well, so that `up` does not change it: put new ones beside it instead"
	inTurn        = "templates are rebuilt; running machines are upgraded to it, one after the other ([upgrades](upgrades.md))"
	nextUpgrade   = "the next upgrade of Talos"
	ofTemplate    = "templates are rebuilt; running machines stay as they are"
	hostFiles     = "the host is changed over SSH; machines do not notice, unless the host must be rebooted"
	newMachines   = "new machines only"
	newVolumes    = "new volumes only: the class is recreated"
	handover      = "the cluster gets it"
	nextBackup    = "no resource; the next backup"
	cloudInit     = "cloud-init takes the machine for a new one, which also gets new SSH host keys; refused where it has a password"
	identity      = "machines of other VMIDs are other machines"
	fluxFollows   = "Flux follows at once; nothing restarts"
	rollsOut      = "the release is upgraded, and its pods rolled out"
)

// changesOf are the changes of each key.
var changesOf = map[string][]try{
	"Config.talos-proxmox:hosts": {
		{note: "one more: nothing that runs moves; calculated places of new machines change"},
		{when: "one less", note: "its machines must be elsewhere first"},
	},
	"Config.talos-proxmox:templates": {
		{note: "a class is built where a machine is made of it, and removed where none is"},
	},
	"Config.talos-proxmox:clusters": {
		{note: "one more is made beside the others; one less is deleted with its machines and their data"},
	},
	"Config.talos-proxmox:machines": {
		{note: "one more pool: new machines; one less: its machines are deleted, with their data"},
	},
	"Config.talos-proxmox:protect":        {{note: "the state, and `protection` of control planes' VMs"}},
	"Config.talos-proxmox:proxmoxCluster": {{note: "previews and `up` refuse any other Proxmox from then on"}},
	"Config.talos-proxmox:vmidRanges":     {{note: "see VMIDs"}},
	"Config.talos-proxmox:backup":         {{note: "see Backups"}},
	"Config.talos-proxmox:sshPrivateKey":  {{note: "the next run uses it"}},
	"Config.proxmoxve:endpoint":           {{note: "the next run asks there; it must be the same Proxmox cluster"}},
	"Config.proxmoxve:insecure":           {{note: "the next run"}},
	"Config.proxmoxve:apiToken":           {{note: "the next run logs in with it; a refresh logs in as the last `up` did"}},
	"Config.proxmoxve:username":           {{note: "as the token"}}, "Config.proxmoxve:password": {{note: "as the token"}},
	"Config.talos:imageFactoryUrl": {{note: "templates are rebuilt; running machines get their next image from there"}},

	"VMIDRangesConfig.templates": {{note: "templates get other VMIDs and are rebuilt"}},
	"VMIDRangesConfig.controlPlanes": {
		{path: "vmidRanges.controlPlanes", to: "2100-2199", note: "unless `firstVmid` is set"},
	},
	"VMIDRangesConfig.workers": {{path: "vmidRanges.workers", to: "3100-3999", note: "unless `firstVmid` is set"}},
	"VMIDRangesConfig.gpuWorkers": {
		{path: "vmidRanges.gpuWorkers", to: "4100-4199", note: "unless `firstVmid` is set"},
	},

	"ClusterConfig.gitops": {
		{note: "Flux is installed, and `up` waits for its first reconciliation; without it nothing is removed ([platform](platform.md#flux))"},
	},
	"GitOpsConfig.kind": {{note: fluxFollows}}, "GitOpsConfig.url": {{note: fluxFollows}}, "GitOpsConfig.ref": {{note: fluxFollows}},
	"GitOpsConfig.path":           {{note: fluxFollows + "; what the new folder does not have is deleted"}},
	"GitOpsConfig.interval":       {{note: fluxFollows}},
	"GitOpsConfig.pullSecret":     {{note: "see below"}},
	"GitOpsConfig.age":            {{note: fluxFollows + ", but for the first key and the last, with which kustomize-controller restarts"}},
	"GitOpsConfig.version":        {{note: "the controllers of Flux are upgraded"}},
	"GitOpsConfig.operator":       {{note: "the operator of Flux is upgraded"}},
	"GitOpsConfig.timeoutSeconds": {{note: "the next run"}},
	"PullSecretConfig.identity":   {{note: fluxFollows}}, "PullSecretConfig.knownHosts": {{note: fluxFollows}},
	"PullSecretConfig.username": {{note: fluxFollows}}, "PullSecretConfig.password": {{note: fluxFollows}},
	"PullSecretConfig.ca":         {{note: fluxFollows}},
	"OperatorChartConfig.chart":   {{note: "the operator of Flux is upgraded where the chart is another one"}},
	"OperatorChartConfig.version": {{note: "the operator of Flux is upgraded"}},
	"OperatorChartConfig.digest":  {{note: "the next run compares it"}},
	"VMIDRangesConfig.machines": {
		{path: "vmidRanges.machines", to: "5100-5199", note: "unless `firstVmid` is set"},
	},

	"BackupConfig.recipients":        {{note: nextBackup}},
	"BackupConfig.secretsRecipients": {{note: nextBackup}},
	"BackupConfig.directory":         {{note: nextBackup + "; older ones stay where they are"}},
	"BackupConfig.keep":              {{note: nextBackup + ", which removes what is beyond"}},

	"HostConfig.name":    {{note: "another host; machines do not follow a name"}},
	"HostConfig.number":  {{note: "its templates get other VMIDs and are rebuilt"}},
	"HostConfig.address": {{note: "the next run reaches the host's shell there"}},
	"HostConfig.ssh":     {{note: "see below"}},
	"HostConfig.prep":    {{note: hostFiles}},
	"HostConfig.gpus": {
		{note: "mappings follow; a GPU of a machine that runs cannot go to another one in the same run"},
	},
	"HostConfig.capacity":        {{note: "what the plan is compared with"}},
	"SSHConfig.port":             {{note: "the next run"}},
	"SSHConfig.user":             {{note: "the next run"}},
	"SSHConfig.hostKey":          {{note: "the next run"}},
	"SSHConfig.acceptAnyHostKey": {{note: "the next run"}},
	"PrepConfig.iommu":           {{note: hostFiles}},
	"PrepConfig.zfsArcMaxGiB":    {{note: hostFiles}},
	"PrepConfig.repositories":    {{note: hostFiles}},
	"PrepConfig.reboot":          {{note: "whether a reboot that waits is made, never while machines run on the host"}},
	"GPUConfig.name": {
		{note: "the mapping is recreated by the new name; machines use it by that name after a restart, see `gpu`"},
	},
	"GPUConfig.pci":            {{note: "the mapping follows; machines get the other device when they start again"}},
	"GPUConfig.generation":     {{note: inTurn}},
	"GPUConfig.passthrough":    {{path: "hosts.0.gpus.0.passthrough", to: "raw", note: "the machines that have it"}},
	"CapacityConfig.cores":     {{note: "what the plan is compared with"}},
	"CapacityConfig.memoryMiB": {{note: "what the plan is compared with"}},

	"TemplateConfig.version": {
		{path: "templates.talos.version", to: "v1.14.4", note: inTurn},
		{when: "an older one, or more than one minor version newer", path: "templates.talos.version", to: "v1.14.2"},
	},
	"TemplateConfig.os":           {{note: ofTemplate}},
	"TemplateConfig.release":      {{note: ofTemplate}},
	"TemplateConfig.build":        {{note: ofTemplate}},
	"TemplateConfig.url":          {{note: "nothing where the image is there already"}},
	"TemplateConfig.packages":     {{note: ofTemplate}},
	"TemplateConfig.user":         {{note: ofTemplate}},
	"TemplateConfig.sshKeys":      {{note: ofTemplate}},
	"TemplateConfig.timezone":     {{note: ofTemplate}},
	"TemplateConfig.locale":       {{note: ofTemplate}},
	"TemplateConfig.secureBoot":   {{note: ofTemplate}},
	"TemplateConfig.vlan":         {{note: ofTemplate}},
	"TemplateConfig.buildMinutes": {{note: "the next build"}},
	"TemplateConfig.hosts":        {{note: "one more host: a template there; one less: its template goes, unless machines are made from it"}},
	"TemplateConfig.windows":      {{note: ofTemplate}},
	"WindowsConfig.iso":           {{note: ofTemplate}},
	"WindowsConfig.virtioIso":     {{note: ofTemplate}}, "WindowsConfig.virtioChecksum": {{note: ofTemplate}},
	"WindowsConfig.cloudbaseUrl": {{note: "the next build"}}, "WindowsConfig.cloudbaseChecksum": {{note: ofTemplate}},
	"WindowsConfig.edition": {{note: ofTemplate}},
	"TemplateConfig.arch":   {{note: "amd64 alone"}},
	"TemplateConfig.source": {
		{
			path: "templates.talos.source",
			to:   "iso",
			note: "the boot order of machines that run; only new ones are made from it",
		},
	},
	"TemplateConfig.datastore": {
		{
			when: "where the pool sets none",
			path: "templates.talos.datastore",
			to:   "local-zfs",
			note: "set the pool's `datastore` first",
		},
	},
	"TemplateConfig.imageDatastore": {{note: "the image is downloaded there"}},
	"TemplateConfig.extensions": {
		{
			when: "`qemu-guest-agent`",
			path: "templates.talos.extensions",
			to:   []any{"qemu-guest-agent"},
			note: "the VM's agent option; machines are upgraded to an image with the agent before that",
		},
		{when: "others", note: inTurn},
	},
	"TemplateConfig.acceptAnyExtension": {{note: "a check"}},
	"TemplateConfig.kernelArgs":         {{note: inTurn}},
	"TemplateConfig.checksum":           {{note: ofTemplate}},
	"TemplateConfig.firstVmid":          {{note: ofTemplate}},
	"TemplateConfig.cores":              {{note: ofTemplate}},
	"TemplateConfig.memoryMiB":          {{note: ofTemplate}},
	"TemplateConfig.diskGiB":            {{note: ofTemplate}},
	"TemplateConfig.bridge":             {{note: ofTemplate}},
	"TemplateConfig.gpu":                {{note: ofTemplate}},
	"GPUTemplateConfig.firstVmid":       {{note: ofTemplate}}, "GPUTemplateConfig.checksum": {{note: ofTemplate}},

	"ClusterConfig.name": {{path: theCluster + "name", to: "other"}},
	"ClusterConfig.kubernetesVersion": {
		{
			when: "a patch or one minor version newer",
			note: "Kubernetes is upgraded, one part and one node at a time; nodes are not drained ([upgrades](upgrades.md#kubernetes))",
		},
		{when: "an older one, or more than one minor version newer", path: theCluster + "kubernetesVersion", to: "v1.35.0"},
	},
	"ClusterConfig.talos":                          {{note: "see Talos"}},
	"ClusterConfig.drainTimeoutSeconds":            {{note: "the next change of a machine"}},
	"ClusterConfig.healthCheck":                    {{note: "the next change of a machine"}},
	"ClusterConfig.bootstrapEmpty":                 {{note: "where all control planes have lost their data of etcd, it begins empty; otherwise nothing"}},
	"UpgradeConfig.parallelWorkers":                {{note: nextUpgrade}},
	"UpgradeConfig.allowDowngrade":                 {{note: nextUpgrade}},
	"ClusterConfig.allowSchedulingOnControlPlanes": {{note: configuration}},
	"ClusterConfig.clone":                          {{path: theCluster + "clone", to: "linked"}},
	"ClusterConfig.network":                        {{note: "see Networks"}},
	"ClusterConfig.podCidr":                        {{path: theCluster + "podCidr", to: "10.200.0.0/16"}},
	"ClusterConfig.serviceCidr":                    {{path: theCluster + "serviceCidr", to: "10.112.0.0/12"}},
	"ClusterConfig.cni":                            {{note: "see CNI"}},
	"ClusterConfig.controlPlane":                   {{note: "see Control planes"}},
	"ClusterConfig.workers": {
		{note: "one more pool: new machines; one less: its machines are deleted, with their data"},
	},
	"ClusterConfig.gpuWorkers":  {{note: "as `workers`"}},
	"ClusterConfig.gpuOperator": {{note: "the device plugin goes or comes"}},
	"ClusterConfig.proxmox": {
		{
			when: "set of a cluster that runs",
			note: configuration + ": the kubelet restarts and pods stay; nodes get their labels and provider ids at once",
		},
		{
			when: "none any more",
			note: configuration + "; accounts are deleted, and what the cluster was handed stays there: take out `csi` and `cloudController` first",
		},
	},
	"ProxmoxConfig.region": {
		{when: "another one", note: "refused while nodes run: they have it in their provider ids"},
	},
	"ProxmoxConfig.ca":    {{note: handover + "; restart the software"}},
	"ProxmoxConfig.roles": {{note: "accounts get the other roles; for a moment they have none"}},
	"ProxmoxConfig.csi": {
		{when: "taken out", note: "storage classes and the Secret are removed, and the account; volumes stay where they are"},
	},
	"ProxmoxConfig.cloudController": {{when: "taken out", note: "the Secret is removed, and the account"}},
	"IdentityConfig.tokens": {
		{when: "one more at the end", note: "it is made and " + handover + ", and the others stay; restart the software"},
		{when: "one less", note: "it is deleted at once"},
	},
	"CSIConfig.storageClasses":         {{note: handover + "; of a class that is gone, volumes stay"}},
	"StorageClassConfig.name":          {{note: "another class; volumes keep the name of the old one"}},
	"StorageClassConfig.datastore":     {{note: newVolumes}},
	"StorageClassConfig.fsType":        {{note: newVolumes}},
	"StorageClassConfig.ssd":           {{note: newVolumes}},
	"StorageClassConfig.reclaimPolicy": {{note: newVolumes}},
	"StorageClassConfig.default":       {{note: handover}},
	"ClusterConfig.patches":            {{note: configuration + "; Talos restarts a machine for what it cannot take while it runs, such as `machine.files`, `machine.env` and `machine.udev`"}},

	"CNIConfig.kind": {
		{when: "`none` to `cilium`", note: "the release is installed, where no other CNI runs"},
		{when: "`cilium` to `none`", note: "refused: a run takes no network from pods"},
	},
	"CNIConfig.version":             {{note: rollsOut + ", one minor version at a time"}},
	"CNIConfig.chart":               {{note: rollsOut}},
	"CNIConfig.digest":              {{note: rollsOut}},
	"CNIConfig.values":              {{note: rollsOut}},
	"CNIConfig.loadBalancer":        {{note: rollsOut + "; without it pool and policy are removed"}},
	"CNIConfig.gatewayApi":          {{note: rollsOut + "; the definitions stay"}},
	"CNIConfig.gatewayApiSource":    {{note: "read again"}},
	"CNIConfig.hubble":              {{note: rollsOut}},
	"LoadBalancerConfig.addresses":  {{note: "the pool follows; Services keep addresses that are in it"}},
	"LoadBalancerConfig.interfaces": {{note: "the policy follows"}},

	"NetworkConfig.cidr": {
		{
			path: theCluster + "network",
			to:   map[string]any{"cidr": "10.0.2.0/24", "gateway": "10.0.2.1", "dns": []any{"1.1.1.1"}},
			note: addresses,
		},
	},
	"NetworkConfig.gateway": {{path: theCluster + "network.gateway", to: "10.0.1.254"}},
	"NetworkConfig.bridge":  {{path: theCluster + "network.bridge", to: "vmbr2"}},
	"NetworkConfig.vlan":    {{path: theCluster + "network.vlan", to: 7}},
	"NetworkConfig.mtu":     {{path: theCluster + "network.mtu", to: 1400}},
	"NetworkConfig.dns": {
		{path: theCluster + "network.dns", to: []any{"8.8.8.8"}},
		{when: "none any more", note: "the VM keeps them; " + configuration},
	},
	"NetworkConfig.ntp": {{note: configuration}},
	"NetworkConfig.vip": {{note: configuration + "; the API moves to the new address, so get a new kubeconfig"}},
	"NetworkConfig.addressing": {
		{path: theCluster + "network.addressing", to: "dhcp", note: "make the reservations first"},
	},

	pool + ".template": {
		{
			path: aPool + "template",
			to:   "other",
			note: "machines are upgraded to its version and extensions",
		},
	},
	pool + ".cores": {{path: aPool + "cores", to: 4}}, pool + ".memoryMiB": {{path: aPool + "memoryMiB", to: 8192}},
	pool + ".diskGiB": {
		{when: "more", path: aPool + "diskGiB", to: 80}, {when: "less", path: aPool + "diskGiB", to: 30},
	},
	pool + ".datastore": {
		{path: aPool + "datastore", to: "local-zfs", note: "new machines on another datastore need their own pool"},
	},
	pool + ".firstVmid":    {{path: aPool + "firstVmid", to: 3100, note: identity}},
	pool + ".firstAddress": {{path: aPool + "firstAddress", to: "10.0.1.60", note: addresses}},
	pool + ".addresses":    {{path: aPool + "addresses", to: []any{"10.0.1.60", "10.0.1.61"}, note: addresses}},
	pool + ".hosts":        {{note: newMachines + ": a calculated placement moves no machine"}},
	pool + ".nodes":        {{note: "see Single machines"}},
	pool + ".cpuType":      {{path: aPool + "cpuType", to: "x86-64-v2-AES"}},
	pool + ".numa":         {{path: aPool + "numa", to: true}},
	pool + ".onBoot":       {{path: aPool + "onBoot", to: false}},
	pool + ".startupOrder": {{path: aPool + "startupOrder", to: 3}},
	pool + ".tags":         {{path: aPool + "tags", to: []any{"a"}}},
	pool + ".resourcePool": {{path: aPool + "resourcePool", to: "a"}},
	pool + ".extraDisks": {
		{
			when: "one more",
			path: aPool + "extraDisks",
			to:   []any{map[string]any{"sizeGiB": 10, "interface": "virtio1"}, map[string]any{"sizeGiB": 10}},
		},
		{when: "one less", path: aPool + "extraDisks", to: []any{}},
	},
	pool + ".extraNICs": {{path: aPool + "extraNICs", to: []any{}}},
	pool + ".labels":    {{note: "in place, and on the Kubernetes nodes"}},
	pool + ".taints":    {{note: "in place, and on the Kubernetes nodes; `NoExecute` evicts pods at once"}},
	pool + ".patches":   {{note: "as the cluster's"}},

	"ControlPlaneConfig.count": {
		{when: "more", note: "new ones join"},
		{
			when: "less",
			note: "the last ones leave etcd and are deleted, one after the other ([upgrades](upgrades.md#taking-machines-out))",
		},
	},
	"ControlPlaneConfig.placement": {{note: newMachines}},
	"ControlPlaneConfig.gpu": {
		{
			path: theCluster + "controlPlane",
			to:   map[string]any{"count": 1, "gpu": "rtx4000"},
			note: "the machine is upgraded to an image with the driver before that",
		},
	},
	"ControlPlaneConfig.gpusPerNode": {{note: "as `gpu`"}},
	"ControlPlaneConfig.timeSlicing": {{note: "the device plugin's configuration"}},
	"ControlPlaneConfig.driver":      {{note: inTurn}},
	"WorkersConfig.name":             {{path: aPool + "name", to: "other"}},
	"WorkersConfig.count": {
		{when: "more", note: "new machines"},
		{
			when: "less",
			note: "the last machines are drained and deleted, with their data ([upgrades](upgrades.md#taking-machines-out))",
		},
	},
	"WorkersConfig.placement":    {{note: newMachines}},
	"GPUWorkersConfig.name":      {{path: theCluster + "gpuWorkers.0.name", to: "other"}},
	"GPUWorkersConfig.count":     {{note: "as a pool of workers"}},
	"GPUWorkersConfig.placement": {{note: newMachines}},
	"GPUWorkersConfig.gpu": {
		{
			path: theCluster + "gpuWorkers.0.gpu",
			to:   "rtx4000",
			note: "on the same host; on another host the machine is replaced",
		},
	},
	"GPUWorkersConfig.dedicated":   {{note: "as `taints`"}},
	"GPUWorkersConfig.gpusPerNode": {{note: "as `gpu`"}},
	"GPUWorkersConfig.timeSlicing": {{note: "the device plugin's configuration"}},
	"GPUWorkersConfig.driver":      {{note: inTurn}},
	"MachinesConfig.name":          {{path: aWeb + "name", to: "other"}},
	"MachinesConfig.count":         {{when: "more", note: "new machines"}, {when: "less", note: "the last machines are deleted, with their data"}},
	"MachinesConfig.clone":         {{path: aWeb + "clone", to: "linked"}},
	"MachinesConfig.placement":     {{note: newMachines}},
	"MachinesConfig.user":          {{path: aWeb + "user", to: "ops"}},
	"MachinesConfig.sshKeys": {
		{
			path: aWeb + "sshKeys",
			to:   []any{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"},
		},
	},
	"MachinesConfig.password":      {{note: newMachines + ": cloud-init sets it when a machine starts first"}},
	"MachinesConfig.protect":       {{note: "the state, and the VMs' `protection`"}},
	"MachinesConfig.network":       {{note: "see their networks"}},
	"MachineNetworkConfig.cidr":    {{path: aWeb + "network", to: map[string]any{"cidr": "10.0.0.0/16", "gateway": "10.0.1.1", "dns": []any{"1.1.1.1"}}, note: cloudInit}},
	"MachineNetworkConfig.gateway": {{path: aWeb + "network.gateway", to: "10.0.1.254", note: cloudInit}},
	"MachineNetworkConfig.bridge":  {{path: aWeb + "network.bridge", to: "vmbr2"}},
	"MachineNetworkConfig.vlan":    {{path: aWeb + "network.vlan", to: 7}},
	"MachineNetworkConfig.mtu":     {{path: aWeb + "network.mtu", to: 1400}},
	"MachineNetworkConfig.dns": {
		{path: aWeb + "network.dns", to: []any{"8.8.8.8"}, note: cloudInit},
		{when: "none any more", note: "the VM keeps them"},
	},
	"MachineNetworkConfig.searchDomain": {{path: aWeb + "network.searchDomain", to: "example.org", note: cloudInit}},
	"MachineNetworkConfig.addressing": {
		{
			path: "machines.0",
			to: map[string]any{
				"name": "web", "template": "debian", "network": map[string]any{"addressing": "dhcp", "dns": []any{"1.1.1.1"}},
			},
			note: cloudInit,
		},
	},

	"DriverConfig.flavour": {{note: inTurn}}, "DriverConfig.track": {{note: inTurn}},

	"NodeConfig.host": {
		{
			path: aMachine + "host",
			to:   "pve2",
			note: "it moves while it runs; a machine with a GPU is replaced, and a linked clone is refused",
		},
	},
	"NodeConfig.vmid":      {{path: aMachine + "vmid", to: 3050, note: identity}},
	"NodeConfig.mac":       {{path: aMachine + "mac", to: "02:00:00:00:00:02"}},
	"NodeConfig.address":   {{path: aMachine + "address", to: "10.0.1.70", note: addresses}},
	"NodeConfig.cores":     {{path: aMachine + "cores", to: 4}},
	"NodeConfig.memoryMiB": {{path: aMachine + "memoryMiB", to: 8192}},
	"NodeConfig.diskGiB": {
		{when: "more", path: aMachine + "diskGiB", to: 80}, {when: "less", path: aMachine + "diskGiB", to: 30},
	},
	"NodeConfig.labels": {{note: "as the pool's"}}, "NodeConfig.patches": {{note: "as the cluster's"}},
	"NodeConfig.skip": {{note: "nothing; once it is taken out, the worker gets what it has missed"}},
	"DiskConfig.sizeGiB": {
		{when: "more", path: aDisk + "sizeGiB", to: 20}, {when: "less", path: aDisk + "sizeGiB", to: 5},
	},
	"DiskConfig.datastore": {{path: aDisk + "datastore", to: "local-zfs", note: "off while it is copied"}},
	"DiskConfig.interface": {{path: aDisk + "interface", to: "virtio5"}},
	"NICConfig.bridge":     {{path: aCard + "bridge", to: "vmbr2"}},
	"NICConfig.vlan":       {{path: aCard + "vlan", to: 7}},
	"NICConfig.mtu":        {{path: aCard + "mtu", to: 1400}},
	"NICConfig.cidr":       {{note: configuration}}, "NICConfig.firstAddress": {{note: configuration}},
}
