package spec

// VMPoolConfig is what pools of machines of every kind have in common.
type VMPoolConfig struct {
	// Cores of each machine.
	Cores int `json:"cores,omitempty" jsonschema:"default=2,minimum=1,maximum=512"`
	// Memory of each machine in MiB.
	MemoryMiB int `json:"memoryMiB,omitempty" jsonschema:"default=4096,minimum=512,maximum=16777216"`
	// The system disk of each machine in GiB; it can grow, never shrink.
	DiskGiB int `json:"diskGiB,omitempty" jsonschema:"default=40,minimum=5,maximum=65536"`
	// The datastore of the machines' disks. Default: the template's.
	Datastore string `json:"datastore,omitempty"`
	// The VMID of the first machine; the others follow. Default: the first of the role's range in `vmidRanges`.
	FirstVMID int `json:"firstVmid,omitempty" jsonschema:"minimum=0,maximum=999999999"`
	// The address of the first machine; the others follow. Default: the tenth of the network for control planes
	// (10.0.0.10), the twentieth for workers (10.0.0.20), the fortieth for GPU workers (10.0.0.40), the sixtieth for
	// machines of no cluster (10.0.0.60).
	FirstAddress string `json:"firstAddress,omitempty" jsonschema:"example=10.0.0.40"`
	// The addresses of the machines in order of their numbers, instead of `firstAddress`; at least as many as machines.
	Addresses []string `json:"addresses,omitempty"`
	// The hosts that machines are placed on, in this order. Default: all hosts in order of their names.
	Hosts []string `json:"hosts,omitempty"`
	VMSettings
	// Additional Proxmox tags. Every machine of a cluster has `talos`, its role and `cluster-<name>`, every other one
	// `machine` and its system, such as `debian`.
	Tags []string `json:"tags,omitempty"`
	// Additional disks.
	ExtraDisks []DiskConfig `json:"extraDisks,omitempty"`
	// Additional network cards.
	ExtraNICs []NICConfig `json:"extraNICs,omitempty"`
}

// VMSettings are what each machine of a pool gets as it is stated, in the stack file and in the plan.
type VMSettings struct {
	// The processor type as Proxmox calls it; Talos needs x86-64-v2 or better. `host` is the fastest; hosts of different
	// makes share `x86-64-v2-AES`.
	CPUType string `json:"cpuType,omitempty" jsonschema:"default=host"`
	// Show machines the host's NUMA layout.
	NUMA bool `json:"numa,omitempty" jsonschema:"default=false"`
	// Start machines with their host.
	OnBoot bool `json:"onBoot,omitempty" jsonschema:"default=true"`
	// The place in the host's start-up order; 0 = none.
	StartupOrder int `json:"startupOrder,omitempty" jsonschema:"default=0,minimum=0,maximum=9999"`
	// The Proxmox resource pool, which has to exist.
	ResourcePool string `json:"resourcePool,omitempty"`
}

// PoolConfig is what control planes and pools of workers have in common.
type PoolConfig struct {
	// The class of the machines' template.
	Template string `json:"template,omitempty" jsonschema:"default=talos"`
	VMPoolConfig
	// What single machines have different from their pool, by number (`"2"`) or name (`prod-cp-2`).
	Nodes map[string]NodeConfig `json:"nodes,omitempty"`
	// Labels of the Kubernetes nodes; running nodes follow. Not those that Kubernetes lets no worker set
	// (`node-role.kubernetes.io/…` and others of `kubernetes.io` and `k8s.io`), nor those of every node.
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of the Kubernetes nodes, as `key=value:Effect` or `key:Effect`; nodes register with them, and running nodes
	// follow.
	Taints []string `json:"taints,omitempty" jsonschema:"example=dedicated=db:NoSchedule"`
	// Talos strategic-merge patches for the machines of the pool, as YAML text; applied after the cluster's.
	Patches []string `json:"patches,omitempty"`
}

// VMConfig is what a single machine of any kind has different from its pool.
type VMConfig struct {
	// The host; a running machine moves when it changes, while the calculated placement never moves one. A machine with a
	// GPU is replaced instead.
	Host string `json:"host,omitempty"`
	// The VMID.
	VMID int `json:"vmid,omitempty" jsonschema:"minimum=0,maximum=999999999"`
	// The MAC address of the first network card.
	MAC string `json:"mac,omitempty" jsonschema:"example=02:00:00:00:00:01"`
	// The address.
	Address string `json:"address,omitempty"`
	// Cores; 0 = the pool's.
	Cores int `json:"cores,omitempty" jsonschema:"minimum=0,maximum=512"`
	// Memory in MiB; 0 = the pool's.
	MemoryMiB int `json:"memoryMiB,omitempty" jsonschema:"minimum=0,maximum=16777216"`
	// The system disk in GiB; 0 = the pool's.
	DiskGiB int `json:"diskGiB,omitempty" jsonschema:"minimum=0,maximum=65536"`
}

// NodeConfig is what a single machine of a cluster has different from its pool.
type NodeConfig struct {
	VMConfig
	// Labels beside the pool's; a label of the same key replaces the pool's.
	Labels map[string]string `json:"labels,omitempty"`
	// Talos strategic-merge patches, as YAML text; applied last.
	Patches []string `json:"patches,omitempty"`
	// Leave a worker that is dead as it is: Talos, Kubernetes and machine configurations change without it, and the
	// health gate does not ask it. A run without this takes it in again.
	Skip bool `json:"skip,omitempty" jsonschema:"default=false"`
}

// DiskConfig is an additional disk of every machine of a pool.
type DiskConfig struct {
	// Size in GiB; it can grow, never shrink.
	SizeGiB int `json:"sizeGiB" jsonschema:"required,minimum=1,maximum=65536,example=100"`
	// The datastore. Default: the pool's.
	Datastore string `json:"datastore,omitempty"`
	// Where the disk is attached: `virtio0` to `virtio15`, or `scsi1` to `scsi30`. Default: `virtio1` for the first
	// additional disk, `virtio2` for the second and so on; a disk that a machine has already stays where it is. The
	// Proxmox CSI plugin attaches volumes to `scsi1` to `scsi29`, so leave these to it.
	Interface string `json:"interface,omitempty" jsonschema:"example=virtio1"`
}

// NICConfig is an additional network card of every machine of a pool.
type NICConfig struct {
	// The Proxmox bridge.
	Bridge string `json:"bridge" jsonschema:"required,example=vmbr1"`
	// The VLAN tag that Proxmox sets; 0 = untagged.
	VLAN int `json:"vlan,omitempty" jsonschema:"default=0,minimum=0,maximum=4094"`
	// The largest packet in bytes; 0 = the bridge's.
	MTU int `json:"mtu,omitempty" jsonschema:"default=0,minimum=0,maximum=65520"`
	// The IPv4 network of static addresses. Default: none, the card asks by DHCP.
	CIDR string `json:"cidr,omitempty" jsonschema:"example=10.1.0.0/24"`
	// The address of the first machine in `cidr`; the others follow. Default: as for the pool's `firstAddress`.
	FirstAddress string `json:"firstAddress,omitempty"`
}
