package spec

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Role is the role of a node in its cluster.
type Role string

// The roles of nodes.
const (
	RoleControlPlane Role = "controlplane"
	RoleWorker       Role = "worker"
)

// VM is a virtual machine of the plan, whatever runs on it.
type VM struct {
	Name string // <cluster>-cp-<n>, <cluster>-<pool>-<n> or <pool>-<n>, n from 1; also the host name
	// Path is the path of the machine's pool in the configuration, for later errors: clusters[0].workers[1].
	Path string `json:"-"`
	// OverridePaths are the paths of keys that are not set by the pool: by the machine, memoryMiB →
	// clusters[0].workers[1].nodes.2.memoryMiB, or by its template, datastore → templates.talos.datastore. Of the keys of
	// the network, they are those that the pool sets, not the cluster: network.bridge →
	// clusters[0].workers[1].network.bridge.
	OverridePaths map[string]string `json:"-"`
	Pool          string            // "cp" for control planes
	Index         int               // 0-based in its pool
	Host          string
	// HostPinned reports whether the configuration sets the host; otherwise it was chosen, and a running VM stays on its
	// current host.
	HostPinned bool
	VMID       int
	MAC        string // locally administered, lower case with colons
	Address    netip.Prefix
	// AddressIPv6 is the address in the IPv6 network; invalid = the machine has IPv4 only.
	AddressIPv6 netip.Prefix `json:",omitzero"`

	Template Template // the template on this host
	Linked   bool     // linked instead of full clone

	Cores, MemoryMiB, DiskGiB int
	Datastore                 string
	Tags                      []string // sorted
	VMSettings

	ExtraDisks []Disk
	ExtraNICs  []NIC
	// Bonds are made of those additional network devices that name them; VLANs are those of the first device.
	Bonds []Bond `json:",omitempty"`
	VLANs []VLAN `json:",omitempty"`
	// HA is its high availability in Proxmox; nil = none.
	HA *HA `json:",omitempty"`
	// Firewall reports whether Proxmox' firewall is on the network devices that have an address.
	Firewall bool `json:",omitempty"`
	// Devices of the machine's host that are not NVIDIA's GPUs.
	Devices []Device `json:",omitempty"`
}

// Node is a Kubernetes node and its VM.
type Node struct {
	VM

	Cluster string
	Role    Role
	// Network is the pool's own; nil = the cluster's, see [Cluster.NetworkOf].
	Network *Network `json:",omitempty"`
	// Labels and Taints of the Kubernetes node; taints as Talos writes them, key → value:Effect.
	Labels, Taints map[string]string
	// Patches are those of the pool and the node, one YAML document each; PatchPaths are their paths in the stack file.
	Patches    []string
	PatchPaths []string `json:"-"`
	// Secret reports whether patches, labels or taints of the cluster or the node are stored encrypted.
	Secret bool `json:",omitempty"`

	// TPM reports whether the machine has a TPM.
	TPM bool `json:",omitempty"`
	// Encryption are the keys of its volumes; nil = they are not encrypted.
	Encryption *Encryption `json:"-"` // has secrets

	// GPUs of the machine. For a mapping, Proxmox chooses free devices at each start; there are enough for all machines.
	GPUs []Device
	// TimeSlicing is how many pods share each GPU; 0 = no sharing.
	TimeSlicing int
	// Dedicated reports whether only pods that tolerate the GPU taint run on the machine.
	Dedicated bool
	// Skip reports whether the worker is not changed.
	Skip bool `json:",omitempty"`
	// Repair says when the worker may be replaced without asking; nil = never.
	Repair *Repair `json:",omitempty"`
}

// AllDevices returns the node's GPUs, then its other devices.
func (n Node) AllDevices() []Device { return slices.Concat(n.GPUs, n.Devices) }

// Machine is a plain machine, which runs an operating system other than Talos.
type Machine struct {
	VM

	// Network is that of the first card; with DHCP, the machine has no planned address.
	Network      Network
	SearchDomain string // for DNS; empty = the Proxmox host's
	// User is the user that cloud-init creates.
	User    string
	SSHKeys []string
	// Password of the user, secret; empty = none.
	Password string `json:"-"`
	// Protect reports whether the VM is protected against deletion.
	Protect bool
	// Backup reports whether a backup job of Proxmox must include the VM.
	Backup bool `json:",omitempty"`
}

// Member is a VM of the plan with its cluster or plain machine.
type Member struct {
	Node             // only the VM of a plain machine
	Network Network  // of its first card
	Of      *Cluster // nil = a plain machine
	Machine *Machine // nil = a node
}

// BackupName returns the name of a cluster in the names of its backups, which may also be that of other stacks'
// clusters.
func (p *Plan) BackupName(c Cluster) string { return p.Stack + "-" + c.Name }

// Members returns the VMs of the plan: the clusters' nodes, then plain machines.
func (p *Plan) Members() []Member {
	var all []Member

	for i := range p.Clusters {
		for _, n := range p.Clusters[i].Nodes() {
			all = append(all, Member{Node: n, Network: p.Clusters[i].NetworkOf(n), Of: &p.Clusters[i]})
		}
	}

	for i, m := range p.Machines {
		all = append(all, Member{Node: Node{VM: m.VM}, Network: m.Network, Machine: &p.Machines[i]})
	}

	return all
}

// Parent returns the path of the machine's cluster in the configuration, or of a plain machine's pool: clusters[0].
func (m VM) Parent() string {
	if dot := strings.LastIndex(m.Path, "."); dot > 0 {
		return m.Path[:dot]
	}

	return m.Path
}

// Disks returns the system disk, then the additional ones.
func (m VM) Disks() []Disk {
	return append([]Disk{{Interface: m.SystemDisk(), SizeGiB: m.DiskGiB, Datastore: m.Datastore}}, m.ExtraDisks...)
}

// SystemDisk returns the interface of the machine's system disk.
func (m VM) SystemDisk() string {
	if m.Template.System != nil {
		return m.Template.System.Hardware.SystemDisk
	}

	return SystemDisk
}

// SystemDisk is the interface of the system disk of machines that run Talos.
const SystemDisk = "scsi0"

// HasAgent reports whether the machine runs the QEMU guest agent: templates of systems other than Talos always have it.
func (m VM) HasAgent() bool {
	return m.Template.System != nil || m.Template.HasAgent()
}

// Hugepages returns the size of huge pages in MiB as Proxmox writes it; empty = ordinary pages.
func Hugepages(sizeMiB int) string {
	if sizeMiB == 0 {
		return ""
	}

	return strconv.Itoa(sizeMiB)
}

// KeyPath returns the path in the configuration that sets a key of the machine: in its pool, or in [VM.OverridePaths].
func (m VM) KeyPath(key string) string {
	if own, ok := m.OverridePaths[key]; ok {
		return own
	}

	return m.Path + "." + key
}

// Disk is an additional disk of a machine.
type Disk struct {
	// The interface on a new machine: virtio1, virtio2, …; an existing disk keeps its interface.
	Interface string `pulumi:"interface"`
	// Whether interface is certain to be that of the disk, also on running machines. Default: false.
	InterfacePinned bool `pulumi:"pinned,optional"`
	// Whether this run adds the disk to a running machine; this only affects warnings of the engine. Default: false.
	Added bool `json:"-" pulumi:"added,optional"`
	// Size in GiB; it can grow, but not shrink.
	SizeGiB int `pulumi:"size"`
	// The datastore. Default: the machine's.
	Datastore string `pulumi:"datastore,optional"`
	// Handle the disk's requests in a thread of its own; only at virtio0 to virtio15. Default: false.
	IOThread bool `json:",omitempty" pulumi:"iothread,optional"`
	// Show the disk to the machine as a solid-state disk; Proxmox knows that at scsi0 to scsi30. Default: true.
	SSD *bool `json:",omitempty" pulumi:"ssd,optional"`
	// Return space that the machine's file systems free to the datastore. Default: true.
	Discard *bool `json:",omitempty" pulumi:"discard,optional"`
	// How the host caches the disk: none, directsync, writethrough, writeback. Default: none.
	Cache string `json:",omitempty" pulumi:"cache,optional"`
	// How QEMU reads and writes the disk: io_uring, native, threads. Default: io_uring.
	AIO string `json:",omitempty" pulumi:"aio,optional"`
	// The name of the volume that the disk is, which outlives the machine: at most ten lower-case letters and digits.
	// Default: none, the disk is deleted with the machine.
	Volume string `json:",omitempty" pulumi:"volume,optional"`
}
