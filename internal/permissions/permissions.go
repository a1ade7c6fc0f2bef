// Package permissions has the table of privileges that the program needs on Proxmox VE: docs/permissions.md is
// generated from it, previews and `talos-proxmox check` compare tokens with it, and the lab uses exactly these roles.
package permissions

import (
	"slices"
	"strings"
)

// The program's account, and its token in the lab.
const (
	User  = "pulumi@pve"
	Token = User + "!talos"
	// Group is the group of the accounts of clusters' software: the privilege to change the users of a group does not
	// cover others, such as root@pam's tokens.
	Group = "talos-kubernetes"
	// OwnGroup is an optional group of the program's own user: with a privilege on it, the token can read its own expiry.
	OwnGroup = "talos-proxmox"
)

// Need is a privilege that the program needs.
type Need struct {
	Privilege string
	// Path is where it is needed; see Propagates. A part in angle brackets stands for the names in Places.
	Path string
	// Call is the API call that needs it.
	Call string
	// Why is what the program does with the call.
	Why string
	// Beyond is what else its holder can do; empty if it reaches no further than the stack. Escalates: so becomes root on
	// the hosts, or Administrator.
	Beyond    string
	Escalates bool
	// Lesser are privileges that would be enough for everything but Call.
	Lesser []string
	// Instead are privileges that are enough as well.
	Instead []string
	// Refusal is Proxmox' error without it, for VM 2000, template 900, host pve1, datastores local and local-lvm, bridge
	// vmbr0.
	Refusal string
}

// SeeFirewall is the call that shows whether the firewall of the data centre is on.
const SeeFirewall = "GET /cluster/firewall/options"

// SeeBackupJobs is the call that shows which machines backup jobs include.
const SeeBackupJobs = "GET /cluster/backup"

// Role is a role with the reasons for its privileges.
type Role struct {
	ID string
	// For is the setting that needs the role; empty for the roles that every stack needs.
	For   string
	Needs []Need
}

// The paths of the objects of a stack.
const (
	OnImages   = "/storage/<images>"
	OnDisks    = "/storage/<disks>"
	OnVolumes  = "/storage/<volumes>"
	OnPool     = "/pool/<pool>"
	OnMappings = "/mapping/pci/<device>"
	// OnUSBMappings are those of USB devices.
	OnUSBMappings = "/mapping/usb/<device>"
)

// Places are the names of the objects of a stack that roles are granted on: the datastores of downloaded images, of the
// disks of machines and of the volumes of storage classes, and the PCI and USB mappings.
type Places struct{ Images, Disks, Volumes, Mappings, USBMappings []string }

// Example has the places of the documents.
func Example() Places {
	return Places{
		Images: []string{"local"}, Disks: []string{"local-lvm"}, Volumes: []string{"csi"}, Mappings: []string{"rtx4000"},
		USBMappings: []string{"zigbee"},
	}
}

// Paths returns the paths that a path of a [Need] stands for, sorted. Without mappings of a kind, the path of all of
// them stands for none.
func (p Places) Paths(path string) []string {
	names, listed := map[string][]string{
		OnImages: p.Images, OnDisks: p.Disks, OnVolumes: p.Volumes, OnMappings: p.Mappings, OnUSBMappings: p.USBMappings,
	}[path]

	switch {
	case path == allMappings && len(p.Mappings) == 0, path == allUSBMappings && len(p.USBMappings) == 0:
		return nil
	case !listed:
		return []string{path}
	}

	above, _, _ := strings.Cut(path, "<")

	list := make([]string, 0, len(names))
	for _, name := range names {
		list = append(list, above+name)
	}

	slices.Sort(list)

	return slices.Compact(list)
}

// The supported major versions of Proxmox VE.
const (
	OldestPVE = 8
	NewestPVE = 9
)

// Proxmox VE 8 has monitor in place of guestAgentAudit, and no replicate.
const (
	replicate       = "VM.Replicate"
	guestAgentAudit = "VM.GuestAgent.Audit"
	monitor         = "VM.Monitor"
	guestAgentPVE   = 9
)

const (
	modifyMapping  = "Mapping.Modify"
	allMappings    = "/mapping/pci"
	allUSBMappings = "/mapping/usb"

	configure = "PUT /nodes/{node}/qemu/{vmid}/config"
	clone     = "POST /nodes/{node}/qemu/{vmid}/clone"
	postUser  = "POST /access/users"
	putACL    = "PUT /access/acl"
)

// Roles returns the minimal roles of the program: docs/permissions.md is generated from them, and the lab uses them.
func Roles() []Role {
	vm := func(privilege, call, why string) Need {
		return needOn("/vms", privilege, call, why, " (/vms/2000, "+privilege+")")
	}
	agent := needOn("/vms", guestAgentAudit, "GET /nodes/{node}/qemu/{vmid}/agent/network-get-interfaces",
		"read the addresses of nodes with the extension `qemu-guest-agent`; otherwise every read waits for the agent's timeout",
		" (/vms/2000, VM.GuestAgent.Audit|VM.GuestAgent.Unrestricted)")
	remove := needOn(OnImages, "Datastore.Allocate", "DELETE /nodes/{node}/storage/{storage}/content/{volume}",
		"delete images, after an upgrade and at destroy; Proxmox has no lesser privilege for that",
		" (/storage/local, Datastore.Allocate)")
	remove.Lesser = []string{"Datastore.Audit"}

	see := needOn(OnDisks, "Datastore.Audit", "GET /nodes/{node}/storage/{storage}/content/{volume}",
		"read the disks of VMs", " (/storage/local-lvm, Datastore.Audit)")
	see.Instead = []string{"Datastore.Allocate"}

	return slices.Concat([]Role{
		{ID: "TalosProxmox", Needs: []Need{
			needOn("/vms", "VM.Clone", clone, "clone the template", " (/vms/900, VM.Clone)"),
			needOn("/vms", "VM.Allocate", clone, "clone to a new VMID; create and delete VMs", ""),
			vm("VM.Audit", "GET /nodes/{node}/qemu/{vmid}/status/current", "see VMs, their configuration and status"),
			vm("VM.Config.CDROM", configure, "the empty CD-ROM drive, the cloud-init drive, the ISO"),
			vm("VM.Config.CPU", configure, "cores and CPU type"),
			vm("VM.Config.Cloudinit", configure, "the cloud-init drive with a node's first address"),
			vm("VM.Config.Disk", "PUT /nodes/{node}/qemu/{vmid}/resize", "change the size and options of disks, extra disks"),
			vm("VM.Config.HWType", configure, "display, serial port, tablet, machine type"),
			vm("VM.Config.Memory", configure, "memory, without ballooning"),
			vm("VM.Config.Network", configure, "network devices"),
			vm("VM.Config.Options", configure, "name, description, start at boot, guest agent"),
			agent,
			vm("VM.PowerMgmt", "POST /nodes/{node}/qemu/{vmid}/status/start", "start, stop and reboot VMs"),
			remove,
			needOn(OnImages, "Datastore.AllocateSpace", "GET /nodes/{node}/storage/{storage}/content", "list images",
				" (/storage/local, Datastore.Audit|Datastore.AllocateSpace)"),
			needOn(OnImages, "Datastore.AllocateTemplate", "POST /nodes/{node}/storage/{storage}/download-url",
				"download images", " (/storage/local, Datastore.AllocateTemplate)"),
			needOn("/sdn/zones/localnetwork", "SDN.Use", clone, "use the bridge", " (/sdn/zones/localnetwork/vmbr0, SDN.Use)"),
			needOn(
				"/nodes", "Sys.AccessNetwork", "GET /nodes/{node}/query-url-metadata", "let hosts download from the Image Factory",
				"",
			),
		}},
		{ID: "TalosProxmoxDisks", Needs: []Need{
			needOn(OnDisks, "Datastore.AllocateSpace", clone, "create the disks of VMs",
				" (/storage/local-lvm, Datastore.AllocateSpace)"),
			see,
		}},
		{ID: "TalosProxmoxGPU", For: "machines with GPUs or other devices of their host", Needs: []Need{
			needOn(OnMappings, "Mapping.Use", configure, "pass mapped PCI devices through, such as GPUs",
				" (/mapping/pci/rtx4000, Mapping.Use)"),
			needOn(OnUSBMappings, "Mapping.Use", configure, "pass mapped USB devices through",
				" (/mapping/usb/zigbee, Mapping.Use)"),
		}},
		{ID: "TalosProxmoxMappings", For: "runs that create, change or delete the mapping of a device", Needs: []Need{
			needOn(allMappings, modifyMapping, "POST /cluster/mapping/pci", "create and delete PCI mappings",
				" (/mapping/pci, Mapping.Modify)"),
			needOn(OnMappings, modifyMapping, "PUT /cluster/mapping/pci/{id}", "change them",
				" (/mapping/pci/rtx4000, Mapping.Modify)"),
			needOn(allUSBMappings, modifyMapping, "POST /cluster/mapping/usb", "create and delete USB mappings",
				" (/mapping/usb, Mapping.Modify)"),
			needOn(OnUSBMappings, modifyMapping, "PUT /cluster/mapping/usb/{id}", "change them",
				" (/mapping/usb/zigbee, Mapping.Modify)"),
		}},
		{ID: "TalosProxmoxMove", For: "moving a running machine (`nodes.<n>.host`)", Needs: []Need{
			vm("VM.Migrate", "POST /nodes/{node}/qemu/{vmid}/migrate", "move a VM to its configured host"),
		}},
		{ID: "TalosProxmoxHA", For: "`ha` of a pool", Needs: []Need{
			needOn("/", "Sys.Console", "POST /cluster/ha/resources", "have machines started again, and say on which hosts",
				" (/, Sys.Console)"),
			needOn("/", "Sys.Audit", "GET /cluster/ha/resources", "see which machines are, and what becomes of them",
				" (/, Sys.Audit)"),
		}},
		{ID: "TalosProxmoxReplication", For: "`ha.replication` of a pool", Needs: []Need{
			vm(replicate, "POST /cluster/replication", "copy the disks of VMs to other hosts, and remove the copies"),
		}},
		{ID: "TalosProxmoxFirewall", For: "`firewall.proxmox` of a cluster", Needs: []Need{
			needOn("/", "Sys.Audit", SeeFirewall, "see whether the firewall of the data centre is on", " (/, Sys.Audit)"),
		}},
		{ID: "TalosProxmoxBackup", For: "`backup` of plain machines", Needs: []Need{
			needOn("/", "Sys.Audit", SeeBackupJobs, "see which machines backup jobs include", " (/, Sys.Audit)"),
		}},
		{ID: "TalosProxmoxPool", For: "changing the `resourcePool` of a pool", Needs: []Need{
			needOn(
				"/pool", "Pool.Allocate", "PUT /pools/{poolid}", "move VMs between resource pools", " (/pool/talos, Pool.Allocate)",
			),
		}},
	}, accountRoles(), []Role{
		{ID: "TalosProxmoxStartup", For: "`startupOrder` of a pool", Needs: []Need{
			needOn(
				"/", "Sys.Modify", configure, "the order in which hosts start VMs", " (/, Sys.Modify)",
			),
		}},
	})
}

// accountRoles are those for the accounts of clusters' software.
func accountRoles() []Role {
	grant := func(privilege string) Need {
		n := needOn(OnVolumes, privilege, putACL, "grant it to the CSI plugin: a token can only grant privileges that it has",
			" (/storage/local-lvm, Permissions.Modify|Datastore.Allocate)")
		if privilege != "Datastore.Allocate" {
			n.Refusal = "ACL update failed: 400 Parameter verification failed."
		}

		return n
	}

	return []Role{
		{ID: "TalosProxmoxAccounts", For: "`proxmox.csi` and `proxmox.cloudController` of a cluster", Needs: []Need{
			needOn("/access/realm/pve", "Realm.AllocateUser", postUser, "create and delete users of the realm pve",
				" (/access/realm/pve, Realm.AllocateUser)"),
			needOn("/access/groups/"+Group, "User.Modify", postUser, "create and delete the group's users and their tokens",
				" (/access/groups/"+Group+", User.Modify)"),
			grant("Datastore.Allocate"), grant("Datastore.AllocateSpace"), grant("Datastore.Audit"),
		}},
		{ID: "TalosProxmoxRoles", For: "these accounts with `proxmox.roles: make`, and in stacks from before 2026-11-25", Needs: []Need{
			needOn("/access", "Sys.Modify", "POST /access/roles", "create and delete roles, including its own, so that the token could give "+
				"itself more privileges", " (/access, Sys.Modify)"),
		}},
	}
}

// needOn returns a need on a path; detail follows the common text of Proxmox' error.
func needOn(path, privilege, call, why, detail string) Need {
	return Need{
		Privilege: privilege, Path: path, Call: call, Why: why, Refusal: "Permission check failed" + detail,
		Beyond: beyond[privilege+" "+path], Escalates: slices.Contains(escalating, privilege+" "+path),
	}
}

// Privileges returns the role's privileges on the newest Proxmox VE, sorted.
func (r Role) Privileges() []string { return r.PrivilegesOn(NewestPVE) }

// PrivilegesOn returns the role's privileges on a major version of Proxmox VE (0 = the newest), sorted.
func (r Role) PrivilegesOn(major int) []string {
	list := make([]string, 0, len(r.Needs))
	for _, n := range r.Needs {
		if name := NameOn(major, n.Privilege); name != "" {
			list = append(list, name)
		}
	}

	slices.Sort(list)

	return slices.Compact(list)
}

// Privileges returns the privileges of all roles of the program and of clusters' software, sorted.
func Privileges() []string {
	var list []string
	for _, role := range slices.Concat(Roles(), KubernetesRoles()) {
		list = slices.Concat(list, role.Privileges(), role.PrivilegesOn(8))
	}

	slices.Sort(list)

	return slices.Compact(list)
}

// NameOn returns a privilege's name on a major version of Proxmox VE (0 = the newest); empty = that has none, and the
// program does not use what needs it there.
func NameOn(major int, privilege string) string {
	switch {
	case major == 0 || major >= guestAgentPVE:
		return privilege
	case privilege == guestAgentAudit:
		return monitor
	case privilege == replicate:
		return ""
	default:
		return privilege
	}
}

// Paths returns the paths where the role is granted, sorted.
func (r Role) Paths(places Places) []string {
	list := make([]string, 0, len(r.Needs))
	for _, n := range r.Needs {
		list = append(list, places.Paths(n.Path)...)
	}

	slices.Sort(list)

	return slices.Compact(list)
}

// Propagates reports whether rules on the path apply below it. Those for the whole data centre, all accounts or all
// mappings do not: Sys.Modify on /access would let its holder change the privileges of its own role.
func Propagates(path string) bool {
	return !slices.Contains([]string{"/", "/access", allMappings, allUSBMappings}, path)
}
