package talos

import (
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// ClusterConfig is what all machine configurations of a cluster share.
type ClusterConfig struct {
	// VIP is the shared address of the Kubernetes API; invalid = none. The Talos API never uses it.
	VIP netip.Addr
	// CertSANs are names and addresses in the certificates of the Kubernetes API and of the nodes' Talos APIs, in addition
	// to the endpoint's host, the VIP and the nodes' own names and addresses.
	CertSANs []string
	// PodCIDRs and ServiceCIDRs are the cluster's networks, one of each family, that of IPv4 first; empty = Talos'
	// defaults. They cannot change later.
	PodCIDRs, ServiceCIDRs []netip.Prefix
	// NTP servers; empty = those of DHCP, or Talos' defaults.
	NTP []string
	// NTS authenticates those servers, which are then names. The node runs Talos 1.14 or newer.
	NTS bool
	// LogDestinations are URLs that the logs of services and of the kernel are sent to: tcp://10.0.0.7:6050.
	LogDestinations []string
	// AllowSchedulingOnControlPlanes lets workloads run on control planes.
	AllowSchedulingOnControlPlanes bool
	// Tailscale is the tailnet that the nodes join; nil = none.
	Tailscale *Tailscale
	// Discovery is the URL of the discovery service by which members find each other; empty = the public one,
	// NoDiscovery = none. The Kubernetes registry is always disabled: it cannot work since Kubernetes 1.32.
	Discovery string
	// APIServer and Registries differ from Talos' own settings.
	APIServer  APIServer
	Registries Registries
	// GPUs configures the nodes with GPUs; nil = no node has one.
	GPUs *ClusterGPUs
	// Firewall is Talos' firewall on every node; nil = none, everything is open.
	Firewall *Firewall
	// Patches are the user's strategic-merge patches for every node, applied after the program's own.
	Patches []string
}

// NoDiscovery is the discovery service of clusters whose members use none.
const NoDiscovery = "none"

// NodeConfig is the part of a machine configuration that is specific to one node.
type NodeConfig struct {
	// Name is the host name and the name of the Kubernetes node.
	Name string
	// Role is RoleControlPlane or RoleWorker.
	Role string
	// TalosVersion is the version that it runs, v1.14.4.
	TalosVersion string
	Install      Install
	// Subnet contains the node's own address; etcd and the kubelet use no other, the kubelet besides its IPv6 address.
	Subnet netip.Prefix
	// DNS servers; empty = those of DHCP, or Talos' defaults.
	DNS []netip.Addr
	// SearchDomains of DNS; empty = those of DHCP.
	SearchDomains []string
	// StaticHosts are entries of /etc/hosts.
	StaticHosts []StaticHost
	// Interfaces are the node's network cards; cluster traffic uses the first, which also holds the VIP of control
	// planes.
	Interfaces []Interface
	// Bonds are made of those cards that name them.
	Bonds []Bond
	// Volumes are user volumes on additional disks.
	Volumes []Volume
	// Labels of the Kubernetes node.
	Labels map[string]string
	// Taints of the Kubernetes node: key → value:Effect, or key → Effect.
	Taints map[string]string
	// Region and Zone are the node's topology labels, ProviderID its spec.providerID; empty = unknown.
	Region, Zone, ProviderID string
	// Encryption are the keys of its encrypted volumes.
	Encryption Encryption
	// GPUs configures the node's GPUs; nil = it has none. Labels and Taints override theirs.
	GPUs *GPUs
	// Patches are the user's strategic-merge patches for this node, applied last.
	Patches []string
}

// Install selects the installer and the system disk.
type Install struct {
	// Image is the installer of the node's schematic and platform, see [Factory.Installer]. The stock installer would
	// drop extensions at the next upgrade.
	Image string
	// Disk is the path of the system disk; empty = DefaultInstallDisk.
	Disk string
	// Wipe erases the disk before installation.
	Wipe bool
}

// APIPort is the port of the Kubernetes API on control planes. The endpoint's may be another one, of a load balancer.
const APIPort = constants.DefaultControlPlanePort

// Kubernetes' own networks by default: Talos' for IPv4, and in dual-stack clusters those for IPv6.
const (
	DefaultPodCIDR         = constants.DefaultIPv4PodCIDR
	DefaultServiceCIDR     = constants.DefaultIPv4ServiceCIDR
	DefaultPodCIDRIPv6     = "fd00:10:244::/56"
	DefaultServiceCIDRIPv6 = "fd00:10:96::/112"
)

// DefaultInstallDisk is where scsi0 of a Proxmox VM appears.
const DefaultInstallDisk = "/dev/sda"

// Interface is a network card, selected by MAC because interface names differ between Talos versions.
type Interface struct {
	// MAC is empty for a machine with one card whose address is not known: any.
	MAC string
	// Bond is the name of the bond that the card is in; it then has neither addresses nor VLANs of its own. Empty = none.
	Bond string
	Link
	// VLANs that the node itself tags; a tag set on the Proxmox side is invisible here.
	VLANs []VLAN
}

// Bond is a link that consists of several network cards.
type Bond struct {
	// Name is the link's name.
	Name string
	// Mode, XmitHashPolicy and LACPRate are Talos' names of Linux' settings; the latter two may be empty = Linux' own.
	Mode, XmitHashPolicy, LACPRate string
	// MIIMon is how often the state of the cards is checked, in milliseconds.
	MIIMon int
	Link
	VLANs []VLAN
}

// Route is a route over a link.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
	// Metric is the route's priority, the lowest is used; 0 = Talos' default, 1024.
	Metric int
}

// StaticHost are names of an address.
type StaticHost struct {
	Address netip.Addr
	Names   []string
}

// VLAN is a tagged network on an interface.
type VLAN struct {
	ID int // 1–4094
	Link
}

// Link is the addressing of a network card, bond or VLAN.
type Link struct {
	// DHCP requests the address; Address is then the known lease, or invalid.
	DHCP bool
	// Address with its prefix length; an invalid one without DHCP leaves the link without an address.
	Address netip.Prefix
	// Gateway of the default route; invalid = none. Never set with DHCP, which provides its own.
	Gateway netip.Addr
	// RouteMetric is the metric of the routes that DHCP brings; 0 = Talos' default, 1024.
	RouteMetric int
	// Routes beside that of the gateway.
	Routes []Route
	// AddressIPv6 with its prefix length is an address beside the others; invalid = none.
	AddressIPv6 netip.Prefix
	// GatewayIPv6 of its default route; invalid = none, the link uses the routers that announce themselves.
	GatewayIPv6 netip.Addr
	// MTU in bytes; 0 = the default.
	MTU int
}

// Volume is a Talos user volume, mounted at /var/mnt/<name>.
type Volume struct {
	// Name has letters, digits and hyphens; at most 34.
	Name string
	// SizeGiB is the size of its disk, by which Talos selects it: virtio disks have no serial number and device names
	// change.
	SizeGiB int
}
