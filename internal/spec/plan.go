package spec

import (
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// Plan is everything that a stack will consist of, before the first resource is registered: every name, number,
// address, placement and version is final.
type Plan struct {
	// Stack is the name of the Pulumi stack.
	Stack string
	// Protect reports whether control-plane VMs, Talos secrets and the bootstrap are protected against deletion.
	Protect bool
	// ProxmoxCluster is the fingerprint of the certificate authority of the stack's Proxmox cluster; empty = not set.
	ProxmoxCluster string `json:",omitempty"`
	// Hosts in order of their names.
	Hosts []Host
	// Templates, one for every class on every host that needs or lists it, in order of VMID (then name).
	Templates []Template
	// Clusters in order of their names.
	Clusters []Cluster
	// Machines are plain machines, in order of pool and number.
	Machines []Machine `json:",omitempty"`
	// Backup configures backups; it creates no resources.
	Backup Backup `json:"-"` // has secrets
	// Warnings do not prevent an up; each has its path and a remedy.
	Warnings []string
}

// Host is a Proxmox VE host.
type Host struct {
	Name    string
	Number  int // unique in the stack: configured, or the number at the end of its name
	Address netip.Addr
	SSH     SSH
	// Path is the host's path in the configuration, for later errors: hosts[0].
	Path string `json:"-"`
	// Cores and MemoryMiB are the host's size for guests; 0 = not set.
	Cores, MemoryMiB int
	// Prep configures the host's preparation; nil = none.
	Prep *Prep
	// GPUs in order of their PCI addresses.
	GPUs []Device
	// Devices are the other devices, USB devices first, then in the same order.
	Devices     []Device          `json:",omitempty"`
	devicePaths map[string]string // by [Device.Address]
}

// AllDevices returns the host's GPUs, then its other devices.
func (h Host) AllDevices() []Device { return slices.Concat(h.GPUs, h.Devices) }

// DevicePath returns the path of a device of the host in the configuration: hosts[0].gpus[1].
func (h Host) DevicePath(device Device) string {
	if path, ok := h.devicePaths[device.Address()]; ok {
		return path
	}

	return h.Path + "." + device.Kind.list()
}

// Driver is an NVIDIA driver for Talos.
type Driver struct {
	Flavour string // open or nonfree
	Track   string // lts or production
	// Extensions are the Talos extensions that contain it.
	Extensions []string
}

// Source is the source of a template's bootable disk.
type Source string

// The sources of a template.
const (
	SourceImage Source = "image" // a VM template made from a disk image by a script on the host
	SourceISO   Source = "iso"   // no VM template: the node boots the ISO and installs itself; needs the Proxmox API only
)

// Template is a golden template of one class on one host. If System is nil, it runs Talos.
type Template struct {
	// Key is the class: its key under talos-proxmox:templates, with -nvidia-<flavour>-<track>, -intel-gpu or -amd-gpu for
	// machines with a GPU.
	Key    string
	Class  string `json:"-"` // its key under talos-proxmox:templates
	Name   string // talos-v1.14.4-<class>, debian-13-<build>-<class>; also the VM's name
	Host   string
	VMID   int // 0 for SourceISO, which has no VM
	Source Source
	Talos  // empty with a System
	// System is an operating system other than Talos.
	System *System `json:",omitempty"`

	// Schematic is the id of the image's schematic; empty = not calculated.
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
	// Use images and installers for Secure Boot, which enroll the Image Factory's keys. Default: false.
	SecureBoot bool `json:",omitempty" pulumi:"secureBoot,optional"`
}

// DefaultPlatform is the Talos platform of machines with their first network configuration on a cloud-init drive.
const DefaultPlatform = "nocloud"

// SchematicID returns the id of the schematic in the Image Factory, computed offline.
func (t Talos) SchematicID() string { return t.Contents().ID() }

// Contents returns the schematic.
func (t Talos) Contents() talos.Schematic {
	return talos.Schematic{Extensions: t.Extensions, KernelArgs: t.KernelArgs}
}

// Image returns the name of its image for a source.
func (t Talos) Image(source string) string {
	return talos.ImageName(t.SchematicID(), t.Version, t.Kind(), source == string(SourceISO))
}

// Kind returns the kind of its image and installer.
func (t Talos) Kind() talos.Kind { return talos.Kind{Platform: t.Platform, SecureBoot: t.SecureBoot} }

// HasAgent reports whether its image contains the QEMU guest agent.
func (t Talos) HasAgent() bool {
	return slices.ContainsFunc(t.Extensions, func(name string) bool {
		return strings.TrimPrefix(name, officialExtensions) == "qemu-guest-agent"
	})
}

// Cluster is a Talos Kubernetes cluster.
type Cluster struct {
	Name string
	// Endpoint is the URL of the Kubernetes API: https://<configured host, VIP, or first control plane>:<port>.
	Endpoint string
	// CertSANs are additional names and addresses in the certificates of the Kubernetes and Talos APIs.
	CertSANs          []string   `json:",omitempty"`
	VIP               netip.Addr // invalid without one
	TalosVersion      string     // of the control planes' template
	KubernetesVersion string
	Upgrade           TalosUpgrades
	// DrainSeconds is the timeout of a drain.
	DrainSeconds int
	// HealthCheck is a command of the user, for sh; empty = none.
	HealthCheck string `json:",omitempty"`
	// BootstrapEmpty permits an empty etcd after its data was lost, once for each value.
	BootstrapEmpty string `json:",omitempty"`
	Network        Network
	// PodCIDR and ServiceCIDR are Kubernetes' own networks, which overlap no other network of the stack.
	PodCIDR, ServiceCIDR netip.Prefix
	// CNI is the CNI that the program installs; nil = nodes wait for one that the user installs.
	CNI           *CNI   `json:",omitempty"`
	ControlPlanes []Node // in order of their index
	Workers       []Node // in order of pool name and index; GPU workers are among them
	// AllowSchedulingOnControlPlanes is true if configured, and for clusters without workers.
	AllowSchedulingOnControlPlanes bool
	// GPUOperator leaves the device plugin to NVIDIA's GPU Operator.
	GPUOperator bool
	// GitOps is the source that Flux reconciles; nil = Flux is not installed.
	GitOps *GitOps `json:"-"` // has secrets
	// Patches are the user's patches for all nodes, one YAML document each; PatchPaths are their paths in the stack file.
	Patches    []string
	PatchPaths []string `json:"-"`
	// Secret reports whether patches or time servers are stored encrypted.
	Secret bool `json:",omitempty"`
	// Proxmox is the integration with Proxmox; nil = none.
	Proxmox *Proxmox `json:",omitempty"`
}

// Nodes returns the control planes, then the workers.
func (c Cluster) Nodes() []Node {
	return append(append(make([]Node, 0, len(c.ControlPlanes)+len(c.Workers)), c.ControlPlanes...), c.Workers...)
}

// NetworkOf returns the network of a node's first card.
func (c Cluster) NetworkOf(n Node) Network {
	if n.Network != nil {
		return *n.Network
	}

	return c.Network
}

// ControlPlaneAddresses returns the addresses of the control planes.
func (c Cluster) ControlPlaneAddresses() []string {
	list := make([]string, 0, len(c.ControlPlanes))
	for _, n := range c.ControlPlanes {
		list = append(list, n.Address.Addr().String())
	}

	return list
}

// Network is the network of machines' first network device.
type Network struct {
	// The IPv4 network: 10.0.0.0/24. Required for clusters.
	CIDR netip.Prefix `pulumi:"cidr,optional" provider:"type=go@1:netip:text"`
	// The router's address. Default: none, machines can reach their own network only.
	Gateway netip.Addr `pulumi:"gateway,optional" provider:"type=go@1:netip:text"`
	// The Proxmox bridge. Default: vmbr0.
	Bridge string `pulumi:"bridge,optional"`
	// The VLAN tag that Proxmox sets. Default: 0, untagged.
	VLAN int `pulumi:"vlan,optional"`
	// The MTU in bytes. Default: 0, the bridge's.
	MTU int `pulumi:"mtu,optional"`
	// Name servers. Default: Talos' own.
	DNS []netip.Addr `pulumi:"dns,optional" provider:"type=go@1:netip:text"`
	// Time servers, by name or address. Default: Talos' own.
	NTP []string `pulumi:"ntp,optional"`
	// Use DHCP; the router must reserve the address for the machine's MAC. Default: false.
	DHCP bool `pulumi:"dhcp,optional"`
}

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

	Template Template // the template on this host
	Linked   bool     // linked instead of full clone

	Cores, MemoryMiB, DiskGiB int
	Datastore                 string
	Tags                      []string // sorted
	VMSettings

	ExtraDisks []Disk
	ExtraNICs  []NIC
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
}

// Member is a VM of the plan with its cluster or plain machine.
type Member struct {
	Node             // only the VM of a plain machine
	Network Network  // of its first card
	Of      *Cluster // nil = a plain machine
	Machine *Machine // nil = a node
}

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
}

// NIC is an additional network device of a machine.
type NIC struct { // digests in states contain the names of its fields
	// The Proxmox bridge: vmbr1.
	Bridge string `pulumi:"bridge"`
	// The VLAN tag that Proxmox sets. Default: 0, untagged.
	VLAN int `pulumi:"vlan,optional"`
	// The MTU in bytes. Default: 0, the bridge's.
	MTU int `pulumi:"mtu,optional"`
	// The MAC address.
	MAC string `pulumi:"mac"`
	// The address with its prefix length: 10.1.0.10/24. Default: none, the device uses DHCP.
	Address netip.Prefix `pulumi:"address,optional" provider:"type=go@1:netip:text"`
	// Give a Talos machine's device no address at all, for a bond or bridge that a patch makes. Default: false.
	NoAddress bool `json:",omitempty" pulumi:"noAddress,optional"`
}
