package talos

import "net/netip"

// ClusterConfig is what the machine configurations of a cluster have in common.
type ClusterConfig struct {
	// Subnets the nodes' own addresses are in; etcd and kubelet use no other address. At least one.
	Subnets []netip.Prefix
	// VIP is the Kubernetes API's shared address; invalid = none. Talos' own API never uses it.
	VIP netip.Addr
	// CertSANs are further names and addresses of the Kubernetes API, beside the VIP and the control planes' own
	// addresses.
	CertSANs []string
	// PodCIDR and ServiceCIDR are Kubernetes' own networks; invalid = Talos' defaults. Both stay for the cluster's life.
	PodCIDR, ServiceCIDR netip.Prefix
	// DNS and NTP servers; empty = what DHCP or Talos' defaults say.
	DNS []netip.Addr
	NTP []string
	// AllowSchedulingOnControlPlanes lets ordinary pods run on control planes.
	AllowSchedulingOnControlPlanes bool
	// NoDiscoveryService turns discovery off altogether; otherwise members find each other over the discovery service. The
	// Kubernetes registry is always off, since it cannot work from Kubernetes 1.32 on.
	NoDiscoveryService bool
	// DiscoveryEndpoint is the discovery service's URL; empty = the public one.
	DiscoveryEndpoint string
	// GPUs are what the nodes with GPUs share; nil = there are none.
	GPUs *ClusterGPUs
	// Patches are the user's strategic-merge patches for every node; they are applied after the program's own.
	Patches []string
}

// NodeConfig is one node's part of its machine configuration.
type NodeConfig struct {
	// Name is the host name and the Kubernetes node's name.
	Name string
	// Role is RoleControlPlane or RoleWorker.
	Role    string
	Install Install
	// Interfaces are the node's network cards; the first is the one the cluster talks over, and carries the VIP of control
	// planes.
	Interfaces []Interface
	// Volumes are file systems on additional disks.
	Volumes []Volume
	// Labels of the Kubernetes node.
	Labels map[string]string
	// Taints of the Kubernetes node: key → value:Effect, or key → Effect.
	Taints map[string]string
	// Region and Zone are the node's topology in Kubernetes, and ProviderID its machine's name there; empty = not known.
	Region, Zone, ProviderID string
	// GPUs are the node's; nil = it has none. Labels and Taints come after theirs.
	GPUs *GPUs
	// Patches are the user's strategic-merge patches for this node; they are applied last.
	Patches []string
}

// Install says what is installed where.
type Install struct {
	// Image is the installer of the node's schematic and platform, see [Factory.Installer]. Talos' stock installer would
	// drop extensions at the next upgrade.
	Image string
	// Disk is the system disk's path; empty = DefaultInstallDisk.
	Disk string
	// Wipe erases the disk before an installation.
	Wipe bool
}

// DefaultInstallDisk is where scsi0 of a Proxmox VM appears.
const DefaultInstallDisk = "/dev/sda"

// Interface is a network card, selected by its MAC: interface names differ between Talos versions.
type Interface struct {
	MAC string
	Link
	// VLANs that the node itself tags; a tag set on the Proxmox side is invisible here.
	VLANs []VLAN
}

// VLAN is a tagged network on an interface.
type VLAN struct {
	ID int // 1–4094
	Link
}

// Link says how a network card or VLAN is addressed.
type Link struct {
	// DHCP asks for the address; Address is then the one the router is known to give, or invalid.
	DHCP bool
	// Address with its prefix length; an invalid one without DHCP leaves the link without any.
	Address netip.Prefix
	// Gateway of the default route; invalid = none. Never with DHCP, which brings its own.
	Gateway netip.Addr
	// MTU in bytes; 0 = the default.
	MTU int
}

// Volume is a Talos user volume, mounted at /var/mnt/<name>.
type Volume struct {
	// Name has letters, digits and hyphens; at most 34.
	Name string
	// SizeGiB is the size of the disk made for it, by which Talos finds it: virtio disks have no serial number and names
	// change.
	SizeGiB int
}
