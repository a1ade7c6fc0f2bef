package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/spec"
)

type (
	// HA is a machine's high availability in Proxmox.
	//
	// Its fields, from their own comments (make schema):
	//   - MaxRestart int: How often Proxmox starts the machine again on the same host when that fails, from 1 to 10.
	//     Default: 1.
	//   - MaxRelocate int: On how many other hosts Proxmox then tries it, from 1 to 10. Default: 1.
	//   - Hosts []string: The hosts that the machine may run on. Default: all of the Proxmox cluster.
	//   - Apart bool: Keep the control plane on another host than those of its cluster that have it as well. Default:
	//     false.
	//   - Replication *Replication: The copies of the machine's disks on the other hosts that it may run on. Default:
	//     none.
	HA = spec.HA
	// Replication is how Proxmox copies the disks of a machine to other hosts.
	//
	// Its fields, from their own comments (make schema):
	//   - Schedule string: When Proxmox copies, as one of its calendar events. Default: `*/15`, every 15 minutes.
	//   - RateMBs int: The most that each copy may send, in megabytes (10^6 bytes) per second. Default: 0, no limit.
	Replication = spec.Replication
	// Disk is an additional disk of a machine.
	//
	// Its fields, from their own comments (make schema):
	//   - Interface string: The interface on a new machine: virtio1, virtio2, …; an existing disk keeps its interface.
	//   - InterfacePinned bool: Whether interface is certain to be that of the disk, also on running machines. Default:
	//     false.
	//   - Added bool: Whether this run adds the disk to a running machine; this only affects warnings of the engine.
	//     Default: false.
	//   - SizeGiB int: Size in GiB; it can grow, but not shrink.
	//   - Datastore string: The datastore. Default: the machine's.
	//   - IOThread bool: Handle the disk's requests in a thread of its own; only at virtio0 to virtio15. Default:
	//     false.
	//   - SSD *bool: Show the disk to the machine as a solid-state disk; Proxmox knows that at scsi0 to scsi30.
	//     Default: true.
	//   - Discard *bool: Return space that the machine's file systems free to the datastore. Default: true.
	//   - Cache string: How the host caches the disk: none, directsync, writethrough, writeback. Default: none.
	//   - AIO string: How QEMU reads and writes the disk: io_uring, native, threads. Default: io_uring.
	//   - Volume string: The name of the volume that the disk is, which outlives the machine: at most ten lower-case
	//     letters and digits. Default: none, the disk is deleted with the machine.
	Disk = spec.Disk
	// NIC is an additional network device of a machine.
	//
	// Its fields, from their own comments (make schema):
	//   - Bridge string: The Proxmox bridge: vmbr1.
	//   - VLAN int: The VLAN tag that Proxmox sets. Default: 0, untagged.
	//   - MTU int: The MTU in bytes. Default: 0, the bridge's.
	//   - MAC string: The MAC address.
	//   - Address netip.Prefix: The address with its prefix length: 10.1.0.10/24. Default: none, the device uses DHCP.
	//   - NoAddress bool: Give a Talos machine's device no address at all, for VLANs alone or for a bridge that a patch
	//     makes. Default: false.
	//   - Bond string: The name of the bond of a Talos machine that the device is in. Default: none.
	//   - RouteMetric int: The metric of routes that DHCP brings. Default: 0, Talos' own.
	//   - Routes []Route: Routes of a Talos machine over the device. Default: none.
	//   - VLANs []VLAN: VLANs that a Talos machine tags on the device. Default: none.
	NIC = spec.NIC
	// Bond is a bond of additional network devices.
	//
	// Its fields, from their own comments (make schema):
	//   - Name string: The name of the bond in the machine: bond0.
	//   - Mode string: How the devices are used, as Linux names it: active-backup.
	//   - MIIMon int: How often the state of the devices is checked, in milliseconds.
	//   - XmitHashPolicy string: What chooses the device for a packet: layer2, layer2+3, layer3+4. Default: Linux' own.
	//   - LACPRate string: How often the switch is asked to send LACP packets, with the mode 802.3ad: slow, fast.
	//     Default: Linux' own.
	//   - MTU int: The MTU in bytes. Default: 0, Linux' own.
	//   - Address netip.Prefix: The address with its prefix length: 10.1.0.10/24. Default: none, the bond uses DHCP.
	//   - NoAddress bool: Give the bond no address at all. Default: false.
	//   - RouteMetric int: The metric of routes that DHCP brings. Default: 0, Talos' own.
	//   - Routes []Route: Routes over the bond. Default: none.
	//   - VLANs []VLAN: VLANs that the machine tags on the bond. Default: none.
	Bond = spec.Bond
	// VLAN is a VLAN that a machine tags itself.
	//
	// Its fields, from their own comments (make schema):
	//   - ID int: The tag, from 1 to 4094.
	//   - MTU int: The MTU in bytes. Default: 0, that of the device or bond.
	//   - Address netip.Prefix: The address with its prefix length: 10.1.0.10/24. Default: none, the VLAN uses DHCP.
	//   - NoAddress bool: Give the VLAN no address at all. Default: false.
	//   - RouteMetric int: The metric of routes that DHCP brings. Default: 0, Talos' own.
	//   - Routes []Route: Routes over the VLAN. Default: none.
	VLAN = spec.VLAN
	// Route is a route of a machine.
	//
	// Its fields, from their own comments (make schema):
	//   - Destination netip.Prefix: The network that it leads to: 10.50.0.0/16.
	//   - Gateway netip.Addr: The router's address.
	//   - Metric int: The metric. Default: 0, Talos' own.
	Route = spec.Route
	// StaticHost are names that machines resolve without DNS.
	//
	// Its fields, from their own comments (make schema):
	//   - Address netip.Addr: The address.
	//   - Names []string: The names.
	StaticHost = spec.StaticHost
	// Network is the network of machines' first network device.
	//
	// Its fields, from their own comments (make schema):
	//   - CIDR netip.Prefix: The IPv4 network: 10.0.0.0/24. Required for clusters.
	//   - Gateway netip.Addr: The router's address. Default: none, machines can reach their own network only.
	//   - IPv6 *IPv6Network: The IPv6 network beside it. Default: none.
	//   - Bridge string: The Proxmox bridge. Default: vmbr0.
	//   - VLAN int: The VLAN tag that Proxmox sets. Default: 0, untagged.
	//   - MTU int: The MTU in bytes. Default: 0, the bridge's.
	//   - DNS []netip.Addr: Name servers. Default: Talos' own.
	//   - NTP []string: Time servers, by name or address. Default: Talos' own.
	//   - NTS bool: Authenticate the time servers by NTS, which Talos 1.14 and newer can; they are then names. Default:
	//     false.
	//   - DHCP bool: Use DHCP; the router must reserve the address for the machine's MAC. Default: false.
	//   - Routes []Route: Routes beside that to gateway. Default: none.
	//   - SearchDomains []string: DNS search domains; for a cluster, not for a node. Default: those of DHCP.
	//   - StaticHosts []StaticHost: Names that machines resolve without DNS; for a cluster, not for a node. Default:
	//     none.
	Network = spec.Network
	// IPv6Network is the IPv6 network of machines that have IPv4 as well.
	//
	// Its fields, from their own comments (make schema):
	//   - CIDR netip.Prefix: The network: fd00:1::/64.
	//   - Gateway netip.Addr: The router's address. Default: none, machines use the routers that announce themselves.
	IPv6Network = spec.IPv6Network
)

// PCIDevice is a device of the host, by its mapping or by its address.
type PCIDevice struct {
	// The name of its PCI mapping, the output name of a PCIMapping.
	Mapping pulumi.StringInput `pulumi:"mapping,optional"`
	// Its PCI address, 0000:01:00; only root@pam may pass a device through without a mapping.
	ID string `pulumi:"id,optional"`
	// Attach it as a PCIe device. Default: true.
	PCIe *bool `pulumi:"pcie,optional"`
	// Make its ROM visible to the machine. Default: true.
	ROMBar *bool `pulumi:"rombar,optional"`
}

// USBDevice is a USB device of the host.
type USBDevice struct {
	// The name of its USB mapping, the output name of a USBMapping.
	Mapping pulumi.StringInput `pulumi:"mapping"`
}
