package spec

import (
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// Plan is what a stack will consist of, decided before the first resource is registered: every name, number, address,
// placement and version is final.
type Plan struct {
	// Stack is the name of the Pulumi stack.
	Stack string
	// Protect says that control-plane VMs, Talos secrets and the bootstrap are protected against deletion.
	Protect bool
	// ProxmoxCluster is the fingerprint of the authority of the Proxmox cluster that the stack is on; empty = not stated.
	ProxmoxCluster string `json:",omitempty"`
	// Hosts in order of their names.
	Hosts []Host
	// Templates, one for every host and class that a machine is made from or that the class names, in order of VMID (then
	// name).
	Templates []Template
	// Clusters in order of their names.
	Clusters []Cluster
	// Machines of no cluster, in order of pool and number.
	Machines []Machine `json:",omitempty"`
	// Backup says what is kept of the clusters; no resource follows from it.
	Backup Backup `json:"-"` // has secrets
	// Warnings are what the plan can be carried out with, but better were not; each with its path and what to do about it.
	Warnings []string
}

// Host is a Proxmox VE host.
type Host struct {
	Name    string
	Number  int // unique in the stack: stated, or the number its name ends with
	Address netip.Addr
	SSH     SSH
	// Path leads to the host in the configuration, for errors that come later than the plan: hosts[0].
	Path string `json:"-"`
	// Cores and MemoryMiB are the host's size for guests; 0 = not set.
	Cores, MemoryMiB int
	// Prep says how the host is prepared; nil = not at all.
	Prep *Prep
	// GPUs in order of their PCI addresses.
	GPUs     []GPU
	gpuPaths map[string]string // by PCI address
}

// GPUPath leads to a GPU of the host in the configuration: hosts[0].gpus[1].
func (h Host) GPUPath(gpu GPU) string {
	if path, ok := h.gpuPaths[gpu.PCI]; ok {
		return path
	}

	return h.Path + ".gpus"
}

// GPU is a GPU of a host.
type GPU struct {
	Name string // of its PCI mapping; GPUs of one kind share it
	Host string
	// PCI is its address as Proxmox writes it: 0000:01:00 for all functions of the device, 0000:01:00.0 for one.
	PCI        string
	Generation string // maxwell to blackwell
	Raw        bool   // passed through by address, without a mapping
}

// Driver is one of NVIDIA's drivers for Talos.
type Driver struct {
	Flavour string // open or nonfree
	Track   string // lts or production
	// Extensions of Talos that bring it.
	Extensions []string
}

// Source is how a template comes to a bootable disk.
type Source string

// The sources of a template.
const (
	SourceImage Source = "image" // a VM template made from a disk image by a script on the host
	SourceISO   Source = "iso"   // no VM template: the node boots the ISO and installs itself; needs the Proxmox API only
)

// Template is a golden template of one class on one host: Talos, where System is nil.
type Template struct {
	// the class: its key under talos-proxmox:templates, and -nvidia-<flavour>-<track> for machines with a GPU
	Key    string
	Name   string // talos-v1.14.4-<class>, debian-13-<build>-<class>; also the VM's name
	Host   string
	VMID   int // 0 for SourceISO, which has no VM
	Source Source
	Talos  // empty with a System
	// System is what the template runs where that is not Talos.
	System *System `json:",omitempty"`

	// Schematic is the id of the image's schematic, where someone has calculated it.
	Schematic string `json:"-"`
	Secret    bool   `json:",omitempty"` // the kernel arguments are stored encrypted
	Driver    Driver // of a template for machines with a GPU; otherwise the zero value

	Datastore      string // of the template's disk
	ImageDatastore string // of the downloaded file; content type iso
	// Checksum of the downloaded (still compressed) file of Talos, hex SHA-256; empty = not checked.
	Checksum string
	Bridge   string

	Cores, MemoryMiB, DiskGiB int
}

// Talos is the Talos of a machine: the contents of its image, and of the installer for upgrades. Images come from the
// Image Factory (https://factory.talos.dev), whose schematics have the same fields.
type Talos struct {
	// The full version of Talos, with its v: v1.14.4.
	Version string `pulumi:"version"`
	// Talos' platform. Default: nocloud.
	Platform string `pulumi:"platform,optional"`
	// Official system extensions, by short name (qemu-guest-agent) or in full (siderolabs/qemu-guest-agent).
	Extensions []string `pulumi:"extensions,optional"`
	// Additional kernel arguments, one per entry, in this order.
	KernelArgs []string `pulumi:"kernelArgs,optional"`
}

// DefaultPlatform is Talos' platform of machines whose first network configuration comes from a cloud-init drive.
const DefaultPlatform = "nocloud"

// SchematicID returns the id of the schematic at the Image Factory, computed offline.
func (t Talos) SchematicID() string { return t.Contents().ID() }

// Contents are the schematic.
func (t Talos) Contents() talos.Schematic {
	return talos.Schematic{Extensions: t.Extensions, KernelArgs: t.KernelArgs}
}

// Image is the name of its image from a source.
func (t Talos) Image(source string) string {
	return talos.ImageName(t.SchematicID(), t.Version, t.Platform, source == string(SourceISO))
}

// HasAgent says whether its image answers the QEMU guest agent's calls.
func (t Talos) HasAgent() bool {
	return slices.ContainsFunc(t.Extensions, func(name string) bool {
		return strings.TrimPrefix(name, officialExtensions) == "qemu-guest-agent"
	})
}

// Cluster is a Talos Kubernetes cluster.
type Cluster struct {
	Name string
	// Endpoint is the URL of the Kubernetes API: https://<VIP, or the first control plane>:6443.
	Endpoint          string
	VIP               netip.Addr // invalid without one
	TalosVersion      string     // of the control planes' template
	KubernetesVersion string
	Upgrade           TalosUpgrades
	// DrainSeconds is how long pods may take to leave a node.
	DrainSeconds int
	// HealthCheck is the user's own command, for sh; empty = there is none.
	HealthCheck string `json:",omitempty"`
	// BootstrapEmpty lets an etcd that was lost begin empty, once for each text.
	BootstrapEmpty string `json:",omitempty"`
	Network        Network
	// PodCIDR and ServiceCIDR are Kubernetes' own networks, which overlap no other network of the stack.
	PodCIDR, ServiceCIDR netip.Prefix
	// CNI is what brings pods their network; nil = nodes wait for somebody's.
	CNI           *CNI   `json:",omitempty"`
	ControlPlanes []Node // in order of their index
	Workers       []Node // in order of pool name and index; GPU workers are among them
	// AllowSchedulingOnControlPlanes is true where stated, and for clusters without workers.
	AllowSchedulingOnControlPlanes bool
	// GPUOperator says that NVIDIA's GPU Operator brings the device plugin.
	GPUOperator bool
	// GitOps is what Flux reconciles the cluster from; nil = nothing.
	GitOps *GitOps `json:"-"` // has secrets
	// Patches are the user's own for all nodes, one YAML document each.
	Patches []string
	// Secret says that patches or time servers are stored encrypted.
	Secret bool `json:",omitempty"`
	// Proxmox is what the cluster knows of its Proxmox cluster; nil = nothing.
	Proxmox *Proxmox `json:",omitempty"`
}

// Nodes returns the control planes, then the workers.
func (c Cluster) Nodes() []Node {
	return append(append(make([]Node, 0, len(c.ControlPlanes)+len(c.Workers)), c.ControlPlanes...), c.Workers...)
}

// Network is the network of a cluster's nodes.
type Network struct {
	CIDR    netip.Prefix
	Gateway netip.Addr // invalid without one
	Bridge  string
	VLAN    int // 0 = untagged
	MTU     int // 0 = the bridge's
	DNS     []netip.Addr
	NTP     []string
	// DHCP says that nodes ask for their address; the planned ones are the reservations the router holds for the planned
	// MACs.
	DHCP bool
}

// Role is what a node does in its cluster.
type Role string

// The roles of nodes.
const (
	RoleControlPlane Role = "controlplane"
	RoleWorker       Role = "worker"
)

// VM is a virtual machine of the plan, whatever runs on it.
type VM struct {
	Name string // <cluster>-cp-<n>, <cluster>-<pool>-<n> or <pool>-<n>, n from 1; also the host name
	// Path leads to the machine's pool in the configuration, for errors that come later than the plan:
	// clusters[0].workers[1].
	Path string `json:"-"`
	// Own leads to what is set elsewhere than in the pool, by key: what the machine sets for itself, memoryMiB →
	// clusters[0].workers[1].nodes.2.memoryMiB, and what its template does, datastore → templates.talos.datastore.
	Own   map[string]string `json:"-"`
	Pool  string            // "cp" for control planes
	Index int               // 0-based in its pool
	Host  string
	// HostPinned says that the stack sets this host for the machine; otherwise placement was calculated, and a running VM
	// stays where it is.
	HostPinned bool
	VMID       int
	MAC        string // locally administered, lower case with colons
	Address    netip.Prefix

	Template Template // the template on this host
	Linked   bool     // linked instead of full clone

	Cores, MemoryMiB, DiskGiB int
	Datastore                 string
	Tags                      []string // sorted
	VMSettings

	ExtraDisks []Disk
	ExtraNICs  []NIC
}

// Node is a Kubernetes node and the VM it lives on.
type Node struct {
	VM

	Cluster string
	Role    Role
	// Labels and Taints of the Kubernetes node; taints as key=value:Effect → Talos' map form key → value:Effect.
	Labels, Taints map[string]string
	// Patches are the pool's own, one YAML document each.
	Patches []string
	// Secret says that the cluster's or the node's patches, labels or taints are stored encrypted.
	Secret bool `json:",omitempty"`

	// GPUs are the machine's own. Of a mapped name Proxmox chooses a free one at each start; there are as many as machines
	// need.
	GPUs []GPU
	// TimeSlicing is how many pods share each GPU; 0 = one has it.
	TimeSlicing int
	// Dedicated says that only pods which tolerate the GPUs' taint run on the machine.
	Dedicated bool
	// Skip says that the worker is left as it is.
	Skip bool `json:",omitempty"`
}

// Machine is a machine of no cluster, which runs another system than Talos.
type Machine struct {
	VM

	// Network is that of the first card; by DHCP, the machine has no planned address.
	Network      Network
	SearchDomain string // of short names; empty = the Proxmox host's
	// User is the one that cloud-init makes.
	User    string
	SSHKeys []string
	// Password is the user's, secret; empty = none.
	Password string `json:"-"`
	// Protect says that the VM is protected against deletion.
	Protect bool
}

// Member is a VM of the plan, and what it belongs to.
type Member struct {
	Node             // of a machine of no cluster, its VM alone
	Network Network  // of its first card
	Of      *Cluster // nil = of none
	Machine *Machine // nil = it is a node
}

// Members are the VMs of the plan: the clusters' nodes, then machines of no cluster.
func (p *Plan) Members() []Member {
	var all []Member

	for i := range p.Clusters {
		for _, n := range p.Clusters[i].Nodes() {
			all = append(all, Member{Node: n, Network: p.Clusters[i].Network, Of: &p.Clusters[i]})
		}
	}

	for i, m := range p.Machines {
		all = append(all, Member{Node: Node{VM: m.VM}, Network: m.Network, Machine: &p.Machines[i]})
	}

	return all
}

// Parent leads to the machine's cluster in the configuration, or to its pool where it is of none: clusters[0].
func (m VM) Parent() string {
	if dot := strings.LastIndex(m.Path, "."); dot > 0 {
		return m.Path[:dot]
	}

	return m.Path
}

// Disks are the system disk, then the additional ones.
func (m VM) Disks() []Disk {
	return append([]Disk{{Interface: m.SystemDisk(), SizeGiB: m.DiskGiB, Datastore: m.Datastore}}, m.ExtraDisks...)
}

// SystemDisk is the place of the machine's system disk.
func (m VM) SystemDisk() string {
	if m.Template.System != nil {
		return m.Template.System.Hardware.SystemDisk
	}

	return SystemDisk
}

// SystemDisk is the place of the system disk of every machine that runs Talos.
const SystemDisk = "scsi0"

// HasAgent says whether the machine answers the QEMU guest agent's calls: templates of other systems than Talos are
// built with it.
func (m VM) HasAgent() bool {
	return m.Template.System != nil || m.Template.HasAgent()
}

// At leads to a key of the machine's pool in the configuration, or to where it is set instead.
func (m VM) At(key string) string {
	if own, stated := m.Own[key]; stated {
		return own
	}

	return m.Path + "." + key
}

// Disk is an additional disk of a machine.
type Disk struct {
	// Interface is where a new machine gets it: virtio1, virtio2, …
	Interface string
	// InterfacePinned says that it is the place for sure: stated, or where a running machine has it. Otherwise a machine
	// that has the disk already keeps its place.
	InterfacePinned bool
	// Added says that a running machine has it from this run on: the stack file alone does not tell.
	Added     bool `json:"-"`
	SizeGiB   int
	Datastore string
}

// NIC is an additional network device of a machine.
type NIC struct { // the names of its fields are those of the digests that stacks have
	// The Proxmox bridge: vmbr1.
	Bridge string `pulumi:"bridge"`
	// The VLAN tag that Proxmox sets. Default: 0, untagged.
	VLAN int `pulumi:"vlan,optional"`
	// The MTU in bytes. Default: 0, the bridge's.
	MTU int `pulumi:"mtu,optional"`
	// The MAC address.
	MAC string `pulumi:"mac"`
	// The address with its prefix length: 10.1.0.10/24. Default: none, the device uses DHCP.
	Address string `pulumi:"address,optional"`
}

// Prefix is its address; invalid = DHCP.
func (n NIC) Prefix() netip.Prefix {
	prefix, _ := netip.ParsePrefix(n.Address)

	return prefix
}
