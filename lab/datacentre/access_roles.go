package datacentre

import (
	"maps"
	"slices"
	"strings"

	"talos-proxmox/lab/schema"
)

// Role is a named set of privileges.
type Role struct {
	ID         string   `json:"id"`
	Privileges []string `json:"privileges"`
	// Special roles are Proxmox' own and cannot be changed.
	Special bool `json:"-"`
}

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
var specialRoles = map[int]map[string]map[string]bool{PVE8: makeSpecialRoles(PVE8), PVE9: makeSpecialRoles(PVE9)}

func (d *Datacentre) specialRoles() map[string]map[string]bool {
	return specialRoles[d.options.Release]
}

func makeSpecialRoles(release int) map[string]map[string]bool {
	roles := map[string]map[string]bool{}

	for id, privileges := range schema.Roles() {
		roles[id] = map[string]bool{}

		for _, p := range privileges {
			switch {
			case release == PVE9:
				roles[id][p] = true
			case p == "VM.Replicate":
				roles[id]["VM.Monitor"] = true
			default:
				roles[id][p] = !strings.HasPrefix(p, "VM.GuestAgent.")
			}
		}

		maps.DeleteFunc(roles[id], func(_ string, has bool) bool { return !has })
	}

	return roles
}

// rolePrivileges returns a role's privileges, nil where there is no such role; called with the lock held.
func (d *Datacentre) rolePrivileges(id string) map[string]bool {
	if r, ok := d.specialRoles()[id]; ok {
		return r
	}

	r := d.state.Roles[id]
	if r == nil {
		return nil
	}

	set := map[string]bool{}
	for _, p := range r.Privileges {
		set[p] = true
	}

	return set
}

// Roles returns the roles by id, Proxmox' own ones included.
func (d *Datacentre) Roles() map[string]Role {
	roles := copied(d, d.state.Roles)
	for id, privileges := range d.specialRoles() {
		roles[id] = Role{ID: id, Privileges: slices.Sorted(maps.Keys(privileges)), Special: true}
	}

	return roles
}

// AddRole makes a role.
func (d *Datacentre) AddRole(id string, privileges ...string) error {
	if err := d.checkPrivileges(privileges); err != nil {
		return err
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	if d.rolePrivileges(id) != nil {
		return Refuse("create role failed: role '%s' already exists", id)
	}

	d.state.Roles[id] = &Role{ID: id, Privileges: sortedSet(privileges)}

	return nil
}

// SetRole gives a role its privileges, beside those it has with keep.
func (d *Datacentre) SetRole(id string, keep bool, privileges ...string) error {
	if d.specialRoles()[id] != nil {
		return Refuse("auto-generated role '%s' cannot be modified", id)
	}

	if err := d.checkPrivileges(privileges); err != nil {
		return err
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	r := d.state.Roles[id]
	if r == nil {
		return Refuse("update role failed: role '%s' does not exist", id)
	}

	if keep {
		privileges = append(slices.Clone(r.Privileges), privileges...)
	}

	d.state.Roles[id] = &Role{ID: id, Privileges: sortedSet(privileges)}

	return nil
}

// DeleteRole removes a role and every access rule that gives it.
func (d *Datacentre) DeleteRole(id string) error {
	if d.specialRoles()[id] != nil {
		return Refuse("auto-generated role '%s' cannot be deleted", id)
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	if d.state.Roles[id] == nil {
		return Refuse("delete role failed: role '%s' does not exist", id)
	}

	delete(d.state.Roles, id)
	d.dropRules(func(a ACL) bool { return a.Role == id })

	return nil
}

func (d *Datacentre) checkPrivileges(privileges []string) error {
	for _, p := range privileges {
		if !d.specialRoles()["Administrator"][p] {
			return WrongParameter("privs", "invalid format - invalid privilege '%s'\n", p)
		}
	}

	return nil
}

func sortedSet(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)

	return slices.Compact(list)
}
