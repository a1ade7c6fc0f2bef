package datacentre

import (
	"slices"
	"strings"

	"talos-proxmox/lab/schema"
)

// noAccess is the role that revokes whatever other roles grant.
const noAccess = "NoAccess"

// Releases of PVE that the data centre can be of.
const (
	PVE8 = 8
	PVE9 = 9
)

// Release is Proxmox' own, PVE8 or PVE9.
func (d *Datacentre) Release() int { return d.options.Release }

// specialRoles are Proxmox' own roles by release; Administrator has every privilege there is. PVE 8 has VM.Monitor in
// place of VM.Replicate and VM.GuestAgent.*.
var specialRoles = map[int]map[string]Config{PVE8: makeSpecialRoles(PVE8), PVE9: makeSpecialRoles(PVE9)}

func (d *Datacentre) specialRoles() map[string]Config { return specialRoles[d.options.Release] }

func makeSpecialRoles(release int) map[string]Config {
	roles := map[string]Config{}

	for id, privileges := range schema.Roles() {
		if release == PVE8 {
			privileges = slices.DeleteFunc(privileges, func(p string) bool { return strings.HasPrefix(p, "VM.GuestAgent.") })

			if i := slices.Index(privileges, "VM.Replicate"); i >= 0 {
				privileges[i] = "VM.Monitor"
			}
		}

		slices.Sort(privileges)
		roles[id] = Config{"privs": strings.Join(privileges, ","), "special": "1"}
	}

	return roles
}

// rolePrivileges returns a role's privileges; false where there is no such role. Called with the lock held.
func (d *Datacentre) rolePrivileges(id string) ([]string, bool) {
	role, ok := d.specialRoles()[id]
	if !ok {
		role, ok = d.state.Records[Roles][id]
	}

	return role.List("privs"), ok
}
