// Package permissions knows what the program must be allowed to do on Proxmox VE: docs/permissions.md is generated
// from its table, previews and `talos-proxmox check` compare a token with it, and the lab works with exactly these
// roles.
package permissions

import (
	"fmt"
	"slices"
	"strings"
)

// The account that the program works with, and the name of its token in the lab.
const (
	User  = "pulumi@pve"
	Token = User + "!talos"
	// Group is the one that the accounts of clusters' software are in: who may change the users of a group can change no
	// others, root@pam's tokens among them.
	Group = "talos-kubernetes"
	// OwnGroup is one that the program's own user may be in, so that its token can be let see when it ends.
	OwnGroup = "talos-proxmox"
)

// Need is a privilege that the program cannot do without.
type Need struct {
	Privilege string
	// Path is where it is needed; a rule there propagates where Propagates says so.
	Path string
	// Call is what needs it, in the words of the API.
	Call string
	// Why is what the program does with that.
	Why string
	// Lesser are privileges that the rest of the program could do with instead; what is in Call could not.
	Lesser []string
	// Refusal is what Proxmox says without it, where the call concerns VM 2000, template 900, host pve1, datastores local
	// and local-lvm, bridge vmbr0.
	Refusal string
}

// Role is a role with what is needed of it.
type Role struct {
	ID string
	// For is the setting that needs the role, empty for the one that every stack needs.
	For   string
	Needs []Need
}

// The major versions of Proxmox VE whose privileges are known.
const (
	OldestPVE = 8
	NewestPVE = 9
)

// Proxmox VE 8 has monitor in place of agentAudit.
const (
	agentAudit = "VM.GuestAgent.Audit"
	monitor    = "VM.Monitor"
	agentPVE   = 9
)

const (
	configure = "PUT /nodes/{node}/qemu/{vmid}/config"
	clone     = "POST /nodes/{node}/qemu/{vmid}/clone"
	postUser  = "POST /access/users"
	putACL    = "PUT /access/acl"
)

// Roles are the least roles that the program needs: docs/permissions.md is generated from them, and the lab's program
// works with them.
func Roles() []Role {
	vm := func(privilege, call, why string) Need {
		return on("/vms", privilege, call, why, " (/vms/2000, "+privilege+")")
	}
	agent := on("/vms", agentAudit, "GET /nodes/{node}/qemu/{vmid}/agent/network-get-interfaces",
		"read the addresses of nodes with the extension `qemu-guest-agent`; otherwise every read waits for the agent's timeout",
		" (/vms/2000, VM.GuestAgent.Audit|VM.GuestAgent.Unrestricted)")
	remove := on("/storage", "Datastore.Allocate", "DELETE /nodes/{node}/storage/{storage}/content/{volume}",
		"delete images, after an upgrade and at destroy; Proxmox has no lesser privilege for that",
		" (/storage/local, Datastore.Allocate)")
	remove.Lesser = []string{"Datastore.Audit"}

	return []Role{
		{ID: "TalosProxmox", Needs: []Need{
			on("/vms", "VM.Clone", clone, "clone the template", " (/vms/900, VM.Clone)"),
			on("/vms", "VM.Allocate", clone, "clone to a new VMID; create and delete VMs", ""),
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
			on("/storage", "Datastore.AllocateSpace", "GET /nodes/{node}/storage/{storage}/content",
				"list volumes; the disks of VMs",
				" (/storage/local, Datastore.Audit|Datastore.AllocateSpace)"),
			on("/storage", "Datastore.AllocateTemplate", "POST /nodes/{node}/storage/{storage}/download-url", "download images",
				" (/storage/local, Datastore.AllocateTemplate)"),
			on("/sdn/zones/localnetwork", "SDN.Use", clone, "use the bridge", " (/sdn/zones/localnetwork/vmbr0, SDN.Use)"),
			on(
				"/nodes", "Sys.AccessNetwork", "GET /nodes/{node}/query-url-metadata", "let hosts download from the Image Factory",
				"",
			),
		}},
		{ID: "TalosProxmoxGPU", For: "GPU workers", Needs: []Need{
			on(
				"/mapping/pci", "Mapping.Modify", "POST /cluster/mapping/pci", "create, change and delete PCI mappings of GPUs",
				" (/mapping/pci, Mapping.Modify)",
			),
			on("/mapping/pci", "Mapping.Use", configure, "pass mapped GPUs through", " (/mapping/pci/gpu, Mapping.Use)"),
		}},
		{ID: "TalosProxmoxMove", For: "moving a running machine (`nodes.<n>.host`)", Needs: []Need{
			vm("VM.Migrate", "POST /nodes/{node}/qemu/{vmid}/migrate", "move a VM to its configured host"),
		}},
		{ID: "TalosProxmoxPool", For: "changing the `resourcePool` of a pool", Needs: []Need{
			on(
				"/pool", "Pool.Allocate", "PUT /pools/{poolid}", "move VMs between resource pools", " (/pool/talos, Pool.Allocate)",
			),
		}},
		{ID: "TalosProxmoxAccounts", For: "`proxmox.csi` and `proxmox.cloudController` of a cluster", Needs: []Need{
			on("/access/realm/pve", "Realm.AllocateUser", postUser, "create and delete users of the realm pve",
				" (/access/realm/pve, Realm.AllocateUser)"),
			on("/access/groups/"+Group, "User.Modify", postUser, "create and delete the group's users and their tokens",
				" (/access/groups/"+Group+", User.Modify)"),
			{
				Privilege: "Datastore.Audit", Path: "/storage", Call: putACL,
				Why:     "grant it to the CSI plugin: a token can only grant privileges that it has",
				Refusal: "ACL update failed: 400 Parameter verification failed.",
			},
		}},
		{ID: "TalosProxmoxRoles", For: "these accounts with `proxmox.roles: make`, and in stacks from before 2026-11-25", Needs: []Need{
			on("/access", "Sys.Modify", "POST /access/roles", "create and delete roles, including its own, so that the token could give "+
				"itself more privileges", " (/access, Sys.Modify)"),
		}},
		{ID: "TalosProxmoxStartup", For: "`startupOrder` of a pool", Needs: []Need{
			on(
				"/", "Sys.Modify", configure, "the order in which hosts start VMs", " (/, Sys.Modify)",
			),
		}},
	}
}

// on is a need of a path; detail is what stands behind Proxmox' words.
func on(path, privilege, call, why, detail string) Need {
	return Need{Privilege: privilege, Path: path, Call: call, Why: why, Refusal: "Permission check failed" + detail}
}

// Privileges are the role's of the newest Proxmox VE, sorted.
func (r Role) Privileges() []string { return r.PrivilegesOn(NewestPVE) }

// PrivilegesOn are the role's by the major version of Proxmox VE, 0 = the newest; sorted.
func (r Role) PrivilegesOn(major int) []string {
	list := make([]string, 0, len(r.Needs))
	for _, n := range r.Needs {
		list = append(list, On(major, n.Privilege))
	}

	slices.Sort(list)

	return list
}

// Privileges are all that some role has, of the program's and of clusters' software, sorted.
func Privileges() []string {
	var list []string
	for _, role := range slices.Concat(Roles(), KubernetesRoles()) {
		list = slices.Concat(list, role.Privileges(), role.PrivilegesOn(8))
	}

	slices.Sort(list)

	return slices.Compact(list)
}

// On is a privilege as the major version of Proxmox VE has it, 0 = the newest.
func On(major int, privilege string) string {
	if privilege == agentAudit && major > 0 && major < agentPVE {
		return monitor
	}

	return privilege
}

// Paths are where the role is given, sorted.
func (r Role) Paths() []string {
	list := make([]string, 0, len(r.Needs))
	for _, n := range r.Needs {
		list = append(list, n.Path)
	}

	slices.Sort(list)

	return slices.Compact(list)
}

// Propagates says whether a rule of the path holds below it too. One of the whole data centre, or of all accounts, does
// not: Sys.Modify on /access lets its holder change the privileges of his own role.
func Propagates(path string) bool { return path != "/" && path != "/access" }

// Grant is the shell command that gives the role to a user on a path, and to a token of his; empty = to him alone.
func (r Role) Grant(path, user, token string) string {
	line := "pveum acl modify " + path + " --users " + user
	if token != "" {
		line += " --tokens '" + token + "'"
	}

	line += " --roles " + r.ID
	if !Propagates(path) {
		line += " --propagate 0"
	}

	return line
}

// Command is the shell command that makes the role on a major version of Proxmox VE.
func (r Role) Command(major int) string {
	return fmt.Sprintf("pveum role add %s --privs \"%s\"", r.ID, strings.Join(r.PrivilegesOn(major), " "))
}

// Commands are the shell commands that make the role on a major version of Proxmox VE, and give it to the program's
// user and token; a role of clusters' software is given by the program.
func (r Role) Commands(major int) string {
	lines := []string{r.Command(major)}
	if slices.ContainsFunc(KubernetesRoles(), func(k Role) bool { return k.ID == r.ID }) {
		return lines[0]
	}

	_, token, _ := strings.Cut(Token, "!")

	if r.For == "" {
		lines = append(lines,
			"pveum user add "+User+" --comment talos-proxmox",
			"pveum user token add "+User+" "+token+" --privsep 1 --expire $(date -d '+1 year' +%s)   # prints the secret, once")
	}

	for _, path := range r.Paths() {
		if group, found := strings.CutPrefix(path, "/access/groups/"); found {
			lines = append(lines, "pveum group add "+group)
		}

		lines = append(lines, r.Grant(path, User, Token))
	}

	return strings.Join(lines, "\n")
}
