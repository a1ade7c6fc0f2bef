package spec

// VMPoolConfig holds the settings of every kind of pool.
type VMPoolConfig struct {
	// Cores of each machine.
	Cores int `json:"cores,omitempty" jsonschema:"default=2,minimum=1,maximum=512"`
	// Memory of each machine in MiB.
	MemoryMiB int `json:"memoryMiB,omitempty" jsonschema:"default=4096,minimum=512,maximum=16777216"`
	// The system disk of each machine in GiB; it can grow, but not shrink.
	DiskGiB int `json:"diskGiB,omitempty" jsonschema:"default=40,minimum=5,maximum=65536"`
	// The datastore of the machines' disks. Default: the template's.
	Datastore string `json:"datastore,omitempty"`
	// The VMID of the first machine; the others follow. Default: the first of the role's range in `vmidRanges`.
	FirstVMID int `json:"firstVmid,omitempty" jsonschema:"minimum=0,maximum=999999999"`
	// The address of the first machine; the others follow. Default: the tenth of the network for control planes
	// (10.0.0.10), the twentieth for workers (10.0.0.20), the fortieth for GPU workers (10.0.0.40), the sixtieth for
	// plain machines (10.0.0.60).
	FirstAddress string `json:"firstAddress,omitempty" jsonschema:"example=10.0.0.40"`
	// The addresses of the machines in the order of their numbers, instead of `firstAddress`; at least one for each
	// machine.
	Addresses []string `json:"addresses,omitempty"`
	// The hosts that machines are placed on, in this order. Default: all hosts in order of their names.
	Hosts []string `json:"hosts,omitempty"`
	// Devices from `hosts[].devices`; each machine gets one of each, and is placed on a host that has them.
	Devices []string `json:"devices,omitempty" jsonschema:"example=igpu"`
	VMSettings
	// Have Proxmox' high availability restart the machines, on another host if theirs is dead: `{}` for its defaults. It
	// needs a cluster of Proxmox VE 9 and shared datastores.
	HA *HAConfig `json:"ha,omitempty"`
	// Additional Proxmox tags. Nodes have `talos`, their role and `cluster-<name>`, plain machines `machine` and their
	// system, such as `debian`.
	Tags []string `json:"tags,omitempty"`
	// Additional disks.
	ExtraDisks []DiskConfig `json:"extraDisks,omitempty"`
	// Additional network devices.
	ExtraNICs []NICConfig `json:"extraNICs,omitempty"`
}

// VMSettings are the settings that the plan takes over from the stack file unchanged.
type VMSettings struct {
	// The processor type in Proxmox; Talos needs x86-64-v2 or better. `host` is the fastest; for hosts with different
	// processors use `x86-64-v2-AES`.
	CPUType string `json:"cpuType,omitempty" jsonschema:"default=host"`
	// The weight of each machine when the host's processors are busy: one with 200 gets twice the time of one with 100.
	CPUUnits int `json:"cpuUnits,omitempty" jsonschema:"default=100,minimum=2,maximum=10000"`
	// Show the host's NUMA topology to machines.
	NUMA bool `json:"numa,omitempty" jsonschema:"default=false"`
	// The host's cores that machines run on, such as `0-7,16-23`. Proxmox lets only root@pam set it, logged in with a
	// password. Default: all.
	CPUAffinity string `json:"cpuAffinity,omitempty" jsonschema:"example=0-7"`
	// Back the machines' memory with the host's huge pages of this size in MiB: 2 or 1024; 0 = ordinary pages. It
	// implies `numa`, and Proxmox lets only root@pam set it, logged in with a password.
	HugepagesMiB int `json:"hugepagesMiB,omitempty" jsonschema:"default=0,minimum=0,maximum=1024"`
	// Queues of each network device, so that several cores handle its packets; more than the machine has cores are not
	// used. 0 = one.
	NICQueues int `json:"nicQueues,omitempty" jsonschema:"default=0,minimum=0,maximum=64"`
	// Start machines with their host.
	OnBoot bool `json:"onBoot,omitempty" jsonschema:"default=true"`
	// The position in the host's start-up order; 0 = none.
	StartupOrder int `json:"startupOrder,omitempty" jsonschema:"default=0,minimum=0,maximum=9999"`
	// The Proxmox resource pool, which must exist.
	ResourcePool string `json:"resourcePool,omitempty"`
}

// HAConfig holds the settings of machines in Proxmox' high availability.
type HAConfig struct {
	// How often Proxmox starts a machine again on the same host when that fails.
	MaxRestart int `json:"maxRestart,omitempty" jsonschema:"default=1,minimum=1,maximum=10"`
	// On how many other hosts Proxmox then tries it.
	MaxRelocate int `json:"maxRelocate,omitempty" jsonschema:"default=1,minimum=1,maximum=10"`
	// Copy disks that only their host has to the other hosts of the machines (`hosts`, or all of the stack): `{}` for its
	// defaults. They must be on a ZFS pool of the same name on each. After a failover, a machine runs with its last copy,
	// and has lost what it wrote since; control planes are refused. Default: such disks are refused.
	Replication *ReplicationConfig `json:"replication,omitempty"`
}

// ReplicationConfig holds the settings of copies of machines' disks.
type ReplicationConfig struct {
	// When Proxmox copies, as one of its calendar events: `*/15` is every 15 minutes, `mon..fri 22:30` each working day.
	Schedule string `json:"schedule,omitempty" jsonschema:"default=*/15,example=*/5"`
	// The most that each copy may send, in megabytes (10^6 bytes) per second; 0 = no limit.
	RateMBs int `json:"rateMBs,omitempty" jsonschema:"default=0,minimum=0,maximum=100000"`
}

// PoolConfig holds the settings of control planes and pools of workers.
type PoolConfig struct {
	// The class of the machines' template.
	Template string `json:"template,omitempty" jsonschema:"default=talos"`
	// The network of the machines' first network devices, if it is not the cluster's. Default: the cluster's.
	Network *PoolNetworkConfig `json:"network,omitempty"`
	VMPoolConfig
	// Give each machine a TPM 2.0 of its own, whose state is on the machine's datastore. It cannot change while a machine
	// runs.
	TPM bool `json:"tpm,omitempty" jsonschema:"default=false"`
	// Bonds of additional network devices.
	Bonds []BondConfig `json:"bonds,omitempty"`
	// VLANs that the machines tag on their first network device. Proxmox must not tag it.
	VLANs []VLANConfig `json:"vlans,omitempty"`
	// The encryption of the machines' disks, instead of the cluster's.
	Encryption *Encryption `json:"encryption,omitempty"`
	// Settings of single machines, by number (`"2"`) or name (`prod-cp-2`).
	Nodes map[string]NodeConfig `json:"nodes,omitempty"`
	// Labels of the Kubernetes nodes; running nodes are updated. Labels that Kubernetes does not let a worker set
	// (`node-role.kubernetes.io/…` and others of `kubernetes.io` and `k8s.io`) and those that every node has are refused.
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of the Kubernetes nodes, as `key=value:Effect` or `key:Effect`; nodes register with them, and running nodes
	// are updated.
	Taints []string `json:"taints,omitempty" jsonschema:"example=dedicated=db:NoSchedule"`
	// Talos strategic-merge patches for the machines of the pool, as YAML text; applied after the cluster's.
	Patches []string `json:"patches,omitempty"`
}

// PoolNetworkConfig is the network of a pool's machines. Addressing, time servers, search domains and static hosts are
// the cluster's.
type PoolNetworkConfig struct {
	// The IPv4 network. Default: the cluster's.
	CIDR string `json:"cidr,omitempty" jsonschema:"example=10.0.1.0/24"`
	// The router's address. Default: the cluster's, but none with another `cidr`.
	Gateway string `json:"gateway,omitempty" jsonschema:"example=10.0.1.1"`
	// The IPv6 network, which a pool of a dual-stack cluster needs with another `cidr`. Default: the cluster's.
	IPv6 *IPv6NetworkConfig `json:"ipv6,omitempty"`
	// The Proxmox bridge, or the name of a VNet of Proxmox' SDN. Default: the cluster's, with its `vlan` and `mtu`.
	Bridge string `json:"bridge,omitempty" jsonschema:"example=vmbr1"`
	// The VLAN tag that Proxmox sets. Default: the cluster's, but 0, untagged, with `bridge`.
	VLAN int `json:"vlan,omitempty" jsonschema:"minimum=0,maximum=4094"`
	// The MTU in bytes. Default: the cluster's, but 0, the bridge's, with `bridge`.
	MTU int `json:"mtu,omitempty" jsonschema:"minimum=0,maximum=65520"`
	// Name servers. Default: the cluster's.
	DNS []string `json:"dns,omitempty" jsonschema:"example=1.1.1.1"`
	// Routes beside that to `gateway`. Default: the cluster's, but none with another `cidr`.
	Routes []RouteConfig `json:"routes,omitempty"`
}

// VMConfig holds the settings of a single machine of any kind.
type VMConfig struct {
	// The host. If it changes, a running machine is moved; one with a GPU or another device is replaced, and one with
	// `ha` stays where Proxmox has it. The calculated placement never moves a running machine.
	Host string `json:"host,omitempty"`
	// The VMID.
	VMID int `json:"vmid,omitempty" jsonschema:"minimum=0,maximum=999999999"`
	// The MAC address of the first network device.
	MAC string `json:"mac,omitempty" jsonschema:"example=02:00:00:00:00:01"`
	// The address.
	Address string `json:"address,omitempty"`
	// The address in the IPv6 network. Default: the one with the same place as the machine's IPv4 address.
	AddressIPv6 string `json:"addressIPv6,omitempty" jsonschema:"example=fd00:1::20"`
	// Cores; 0 = the pool's.
	Cores int `json:"cores,omitempty" jsonschema:"minimum=0,maximum=512"`
	// Memory in MiB; 0 = the pool's.
	MemoryMiB int `json:"memoryMiB,omitempty" jsonschema:"minimum=0,maximum=16777216"`
	// The system disk in GiB; 0 = the pool's.
	DiskGiB int `json:"diskGiB,omitempty" jsonschema:"minimum=0,maximum=65536"`
	// Devices in addition to the pool's, for a machine whose `host` is set.
	Devices []string `json:"devices,omitempty" jsonschema:"example=igpu"`
}

// NodeConfig holds the settings of a single node.
type NodeConfig struct {
	VMConfig
	// Labels in addition to the pool's; a label with the same key replaces the pool's.
	Labels map[string]string `json:"labels,omitempty"`
	// Talos strategic-merge patches, as YAML text; applied last.
	Patches []string `json:"patches,omitempty"`
	// Skip a dead worker: Talos, Kubernetes and machine configurations change without it, and the health gate does not
	// check it. The next run without `skip` updates it.
	Skip bool `json:"skip,omitempty" jsonschema:"default=false"`
}

// DiskConfig is an additional disk of every machine of a pool.
type DiskConfig struct {
	// Size in GiB; it can grow, but not shrink.
	SizeGiB int `json:"sizeGiB" jsonschema:"required,minimum=1,maximum=65536,example=100"`
	// The datastore. Default: the pool's.
	Datastore string `json:"datastore,omitempty"`
	// Where the disk is attached: `virtio0` to `virtio15`, or `scsi1` to `scsi30`. Default: `virtio1` for the first
	// additional disk, `virtio2` for the second and so on; an existing disk keeps its interface. The Proxmox CSI plugin
	// attaches volumes to `scsi1` to `scsi29`: do not use these with it.
	Interface string `json:"interface,omitempty" jsonschema:"example=virtio1"`
	// Handle the disk's requests in a thread of its own; only at `virtio0` to `virtio15`.
	IOThread bool `json:"iothread,omitempty" jsonschema:"default=false"`
	// Show the disk to the machine as a solid-state disk; only at `scsi1` to `scsi30`.
	SSD bool `json:"ssd,omitempty" jsonschema:"default=true"`
	// Return space that the machine's file systems free to the datastore.
	Discard bool `json:"discard,omitempty" jsonschema:"default=true"`
	// How the host caches the disk: `none` and `directsync` do not; `writethrough` caches reads; `writeback` also writes,
	// which a failure of the host loses unless the machine has flushed them. `directsync` and `writethrough` write to the
	// disk at once.
	Cache string `json:"cache,omitempty" jsonschema:"default=none,enum=none,enum=directsync,enum=writethrough,enum=writeback,because=unsafe loses what the machine has flushed when the host fails"`
	// How QEMU reads and writes the disk. Use `native` on datastores of the types LVM (not LVM-thin) and CIFS, on which
	// io_uring has hung; it needs `cache` none or directsync.
	AIO string `json:"aio,omitempty" jsonschema:"default=io_uring,enum=io_uring,enum=native,enum=threads"`
	// Make the disk a volume of this name, which outlives the machine: a machine that is replaced, or removed and added
	// again, gets it back with its data, and no run deletes it. An existing disk cannot become one.
	Volume string `json:"volume,omitempty" jsonschema:"example=data"`
}
