package datacentre

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ACL is a rule: a role of someone on a path.
type ACL struct {
	Path string `json:"path"`
	// Kind is user, group or token; ID names it.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Role string `json:"role"`
	// Propagate says that the rule holds for the paths below too.
	Propagate bool `json:"propagate"`
}

func (a ACL) sameTarget(b ACL) bool {
	return a.Path == b.Path && a.Kind == b.Kind && a.ID == b.ID && a.Role == b.Role
}

// aclPath are the paths that PVE knows.
var aclPath = regexp.MustCompile(`^(?:/|/access(?:/(?:groups|realm)(?:/[\w.-]+)?)?|/(?:nodes|storage)(?:/[\w.-]+)?|/pool(?:/[\w.-]+){0,3}|/vms(?:/[1-9]\d{2,})?|` +
	`/sdn(?:/(?:controllers|dns|fabrics|ipams)(?:/[\w-]+)?)?|/sdn/zones(?:/[\w.-]+){0,2}|/sdn/zones/[\w.-]+/[\w.-]+/[1-9]\d{0,3}|/mapping(?:/[\w.-]+){0,2})$`)

// NormalPath is an access path as PVE writes it, empty where it cannot be one.
func NormalPath(path string) string {
	if path == "" {
		return ""
	}

	path = "/" + strings.Join(strings.FieldsFunc(path, func(r rune) bool { return r == '/' }), "/")
	if !regexp.MustCompile(`^[\w./-]+$`).MatchString(path) {
		return ""
	}

	return path
}

// ACLs returns the rules by path.
func (d *Datacentre) ACLs() []ACL {
	return locked(d, func() []ACL { return slices.Clone(d.state.ACL) })
}

// SetACL adds a rule, or replaces the one that gives the same role.
func (d *Datacentre) SetACL(a ACL) error {
	if !aclPath.MatchString(NormalPath(a.Path)) {
		return WrongParameter("path", "invalid ACL path '%s'", a.Path)
	}

	return d.replaceACL(a, a)
}

// DeleteACL removes a rule; one that does not exist is no error, unless its role or its holder does not either.
func (d *Datacentre) DeleteACL(a ACL) error { return d.replaceACL(a) }

// replaceACL puts rules in the place of one, by path.
func (d *Datacentre) replaceACL(a ACL, by ...ACL) error {
	defer d.changing()()

	if err := d.needParties(a); err != nil {
		return err
	}

	a.Path = NormalPath(a.Path)
	d.dropRules(a.sameTarget)

	for _, a := range by {
		a.Path = NormalPath(a.Path)
		d.state.ACL = append(d.state.ACL, a)
	}

	slices.SortStableFunc(d.state.ACL, func(a, b ACL) int {
		return cmp.Or(
			strings.Compare(a.Path, b.Path), strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID),
			strings.Compare(a.Role, b.Role),
		)
	})

	return nil
}

// needParties wants a rule's role and holder to exist.
func (d *Datacentre) needParties(a ACL) error {
	user, token, _ := strings.Cut(a.ID, "!")
	_, isRole := d.rolePrivileges(a.Role)
	_, isUser := d.state.Records[Users][user]
	_, isThere := d.state.Records[Kind(a.Kind)][a.ID]
	isUser = isUser || user == rootUser

	switch {
	case !isRole:
		return Refuse("ACL update failed: role '%s' does not exist", a.Role)
	case a.Kind == "group" && !isThere:
		return Refuse("ACL update failed: group '%s' does not exist", a.ID)
	case a.Kind == "user" && !isUser:
		return Refuse("ACL update failed: user '%s' does not exist", user)
	case a.Kind == "token" && !isUser:
		return Refuse("ACL update failed: no such user ('%s')", user)
	case a.Kind == "token" && !isThere:
		return Refuse("ACL update failed: no such token '%s' for user '%s'", token, user)
	default:
		return nil
	}
}

// Authorise is the one place that decides whether a user or token may use one of the privileges on the path.
func (d *Datacentre) Authorise(user, path string, privileges ...string) error {
	return locked(d, func() error { return d.authorise(user, path, privileges...) })
}

// Allowed is Authorise without words.
func (d *Datacentre) Allowed(user, path string, privileges ...string) bool {
	return d.Authorise(user, path, privileges...) == nil
}

// authorise is Authorise with the lock held.
func (d *Datacentre) authorise(user, path string, privileges ...string) error {
	has := d.permissions(user, path)

	for _, p := range privileges {
		if _, ok := has[p]; ok {
			return nil
		}
	}

	return Forbidden(path + ", " + strings.Join(privileges, "|"))
}

// Permissions returns what a user or token may do on a path: privilege to whether it holds below too.
func (d *Datacentre) Permissions(user, path string) map[string]bool {
	return locked(d, func() map[string]bool { return d.permissions(user, NormalPath(path)) })
}

// permissions is called with the lock held. A separated token has what it has of its own and its user has too.
func (d *Datacentre) permissions(user, path string) map[string]bool {
	owner, _, isToken := strings.Cut(user, "!")

	switch t := d.state.Records[Tokens][user]; {
	case isToken && t == nil:
		return nil
	case isToken && t["privsep"] == "0":
		return d.permissions(owner, path)
	case path == "" && user != rootUser:
		return nil
	}

	roles, privileges := map[string]bool{"Administrator": true}, map[string]bool{}
	if user != rootUser {
		roles = d.rolesOn(user, path)
	}

	for role, propagate := range roles {
		list, _ := d.rolePrivileges(role)
		for _, p := range list {
			privileges[p] = privileges[p] || propagate
		}
	}

	if !isToken || owner == rootUser {
		return privileges
	}

	both := map[string]bool{}
	owners := d.permissions(owner, path)

	for p, propagate := range privileges {
		if below, ok := owners[p]; ok {
			both[p] = propagate && below
		}
	}

	return both
}

// rolesOn are the roles on a path, those from a VM's pool included; NoAccess stands alone.
func (d *Datacentre) rolesOn(user, path string) map[string]bool {
	roles := d.pathRoles(user, path)
	if _, none := roles[noAccess]; none {
		return roles
	}

	id, err := strconv.Atoi(strings.TrimPrefix(path, "/vms/"))
	vm := d.state.VMs[id]

	if err != nil || vm == nil || vm.Pool == "" {
		return roles
	}

	for role := range d.pathRoles(user, "/pool/"+vm.Pool) {
		if role == noAccess {
			return map[string]bool{noAccess: false}
		}

		if _, ok := roles[role]; !ok {
			roles[role] = false
		}
	}

	return roles
}

// pathRoles follows the path from its root: rules of a deeper level replace those above, rules of a user those of his
// groups.
func (d *Datacentre) pathRoles(user, path string) map[string]bool {
	roles := map[string]bool{}
	levels := []string{"/"}

	for i, c := range path + "/" {
		if c == '/' && i > 1 {
			levels = append(levels, path[:i])
		}
	}

	for _, level := range levels {
		own, groups := map[string]bool{}, map[string]bool{}

		for _, a := range d.state.ACL {
			if a.Path != level || level != path && !a.Propagate {
				continue
			}

			switch {
			case a.Kind != "group" && a.ID == user:
				own[a.Role] = a.Propagate
			case a.Kind == "group" && slices.Contains(d.state.Records[Groups][a.ID].List("users"), user):
				groups[a.Role] = groups[a.Role] || a.Propagate
			}
		}

		switch {
		case len(own) > 0:
			roles = own
		case len(groups) > 0:
			roles = groups
		}
	}

	if propagate, none := roles[noAccess]; none {
		return map[string]bool{noAccess: propagate}
	}

	return roles
}
