package spec

import (
	"net/netip"
	"slices"

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
	// Egress are the domains and networks beyond the stack's own that its hosts and machines reach; empty = all.
	Egress []string `json:",omitempty"`
	// Backup configures backups; it creates no resources.
	Backup Backup `json:"-"` // has secrets
	// Notifications say who is told what commands did; they create no resources.
	Notifications Notifications `json:"-"` // has a secret
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
	// A VM template made from a disk image through the Proxmox API, which imports files of the content type import since
	// Proxmox VE 8.4.
	SourceImport Source = "import"
)

// Sources lists the sources, for messages.
const Sources = "image, import or iso"

// HasVM reports whether a template of the source is a VM, from which machines are cloned.
func (s Source) HasVM() bool { return s != SourceISO }

// Content returns Proxmox' content type of the downloaded files.
func (s Source) Content() string {
	if s == SourceImport {
		return "import"
	}

	return "iso"
}

// imageExtensions are those of the names of downloaded files of Talos.
var imageExtensions = map[Source]string{SourceImage: "img", SourceISO: "iso", SourceImport: "qcow2"}

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
	ImageDatastore string // of the downloaded file; its content type is [Source.Content]
	// Checksum of the downloaded (still compressed) file of Talos, hex SHA-256; empty = not checked.
	Checksum string
	Bridge   string

	Cores, MemoryMiB, DiskGiB int
	// ClonedBy are the Proxmox users of autoscalers that clone it, sorted.
	ClonedBy []string `json:",omitempty"`
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
	return talos.ImageName(t.SchematicID(), t.Version, t.Kind(), imageExtensions[Source(source)])
}

// Kind returns the kind of its image and installer.
func (t Talos) Kind() talos.Kind { return talos.Kind{Platform: t.Platform, SecureBoot: t.SecureBoot} }

// HasAgent reports whether its image contains the QEMU guest agent.
func (t Talos) HasAgent() bool { return t.HasExtension(officialExtensions + "qemu-guest-agent") }

// HasExtension reports whether its image contains an official extension, given in full.
func (t Talos) HasExtension(official string) bool {
	return slices.ContainsFunc(t.Extensions, func(name string) bool {
		return name == official || officialExtensions+name == official
	})
}

// Cluster is a Talos Kubernetes cluster.
type Cluster struct {
	Name string
	// Endpoint is the URL of the Kubernetes API: https://<configured host, VIP, or first control plane>:<port>.
	Endpoint string
	// CertSANs are additional names and addresses in the certificates of the Kubernetes and Talos APIs.
	CertSANs []string `json:",omitempty"`
	// Discovery is the URL of the discovery service; empty = Talos' own, none = none.
	Discovery string `json:",omitempty"`
	// LogDestinations are URLs that machines send the logs of Talos' services and of the kernel to.
	LogDestinations []string `json:",omitempty"`
	// Tailscale is the tailnet that the nodes join; nil = none.
	Tailscale         *Tailscale `json:"-"` // has a secret
	VIP               netip.Addr // invalid without one
	TalosVersion      string     // of the control planes' template
	KubernetesVersion string
	Upgrade           TalosUpgrades
	// DrainSeconds is the timeout of a drain.
	DrainSeconds int
	// HealthCheck is a command of the user, for sh; empty = none.
	HealthCheck string `json:",omitempty"`
	// Maintenance says when running machines may be interrupted; nil = at any time.
	Maintenance *Maintenance `json:",omitempty"`
	// BootstrapEmpty permits an empty etcd after its data was lost, once for each value.
	BootstrapEmpty string `json:",omitempty"`
	Network        Network
	// PodCIDR and ServiceCIDR are Kubernetes' own networks, which overlap no other network of the stack.
	PodCIDR, ServiceCIDR netip.Prefix
	// PodCIDRIPv6 and ServiceCIDRIPv6 are those of a dual-stack cluster; invalid = IPv4 only.
	PodCIDRIPv6     netip.Prefix `json:",omitzero"`
	ServiceCIDRIPv6 netip.Prefix `json:",omitzero"`
	// Security is `hardened`, whose settings are in the fields below and in the nodes' encryption; empty = none.
	Security string `json:",omitempty"`
	// CNI is the CNI that the program installs; nil = nodes wait for one that the user installs.
	CNI *CNI `json:",omitempty"`
	// APIServer are the settings of the API servers; nil = Talos' own.
	APIServer *APIServer `json:",omitempty"`
	// Registries are how images are pulled; nil = from their registries.
	Registries *Registries `json:"-"` // has secrets
	// Firewall is that of all machines; nil = everything is open.
	Firewall      *Firewall `json:",omitempty"`
	ControlPlanes []Node    // in order of their index
	Workers       []Node    // in order of pool name and index; GPU workers are among them
	// Autoscaled are the pools that an autoscaler adds machines to.
	Autoscaled []AutoscaledPool `json:",omitempty"`
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
	// The IPv6 network beside it. Default: none.
	IPv6 *IPv6Network `json:",omitempty" pulumi:"ipv6,optional"`
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
	// Authenticate the time servers by NTS, which Talos 1.14 and newer can; they are then names. Default: false.
	NTS bool `json:",omitempty" pulumi:"nts,optional"`
	// Use DHCP; the router must reserve the address for the machine's MAC. Default: false.
	DHCP bool `pulumi:"dhcp,optional"`
	// Routes beside that to gateway. Default: none.
	Routes []Route `json:",omitempty" pulumi:"routes,optional"`
	// DNS search domains; for a cluster, not for a node. Default: those of DHCP.
	SearchDomains []string `json:",omitempty" pulumi:"searchDomains,optional"`
	// Names that machines resolve without DNS; for a cluster, not for a node. Default: none.
	StaticHosts []StaticHost `json:",omitempty" pulumi:"staticHosts,optional"`
}

// IPv6Network is the IPv6 network of machines that have IPv4 as well.
type IPv6Network struct {
	// The network: fd00:1::/64.
	CIDR netip.Prefix `pulumi:"cidr" provider:"type=go@1:netip:text"`
	// The router's address. Default: none, machines use the routers that announce themselves.
	Gateway netip.Addr `pulumi:"gateway,optional" provider:"type=go@1:netip:text"`
}
