package datacentre

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ACL grants a role on a path to a user, group or token.
type ACL struct {
	Path string `json:"path"`
	// Kind is user, group or token; ID is its id.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Role string `json:"role"`
	// Propagate extends the grant to the paths below.
	Propagate bool `json:"propagate"`
}

func (a ACL) sameGrant(b ACL) bool {
	return a.Path == b.Path && a.Kind == b.Kind && a.ID == b.ID && a.Role == b.Role
}

// aclPath matches the paths that PVE accepts in ACLs.
var aclPath = regexp.MustCompile(`^(?:/|/access(?:/(?:groups|realm)(?:/[\w.-]+)?)?|/(?:nodes|storage)(?:/[\w.-]+)?|/pool(?:/[\w.-]+){0,3}|/vms(?:/[1-9]\d{2,})?|` +
	`/sdn(?:/(?:controllers|dns|fabrics|ipams)(?:/[\w-]+)?)?|/sdn/zones(?:/[\w.-]+){0,2}|/sdn/zones/[\w.-]+/[\w.-]+/[1-9]\d{0,3}|/mapping(?:/[\w.-]+){0,2})$`)

// NormalizePath returns an access path as PVE writes it, or "" for a text that is not a path.
func NormalizePath(path string) string {
	if path == "" {
		return ""
	}

	path = "/" + strings.Join(strings.FieldsFunc(path, func(r rune) bool { return r == '/' }), "/")
	if !regexp.MustCompile(`^[\w./-]+$`).MatchString(path) {
		return ""
	}

	return path
}

// ACLs returns the entries, sorted by path.
func (d *Datacentre) ACLs() []ACL {
	return withLock(d, func() []ACL { return slices.Clone(d.state.ACL) })
}

// SetACL adds an entry, or replaces the one of the same role, path and holder.
func (d *Datacentre) SetACL(a ACL) error {
	if !aclPath.MatchString(NormalizePath(a.Path)) {
		return WrongParameter("path", "invalid ACL path '%s'", a.Path)
	}

	return d.replaceACL(a, a)
}

// DeleteACL removes an entry. A missing entry is not an error, a missing role or holder is.
func (d *Datacentre) DeleteACL(a ACL) error { return d.replaceACL(a) }

// replaceACL replaces an entry and keeps the list sorted.
func (d *Datacentre) replaceACL(a ACL, by ...ACL) error {
	defer d.lockWrite()()

	if err := d.checkRoleAndHolder(a); err != nil {
		return err
	}

	a.Path = NormalizePath(a.Path)
	d.deleteACLs(a.sameGrant)

	for _, a := range by {
		a.Path = NormalizePath(a.Path)
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

// checkRoleAndHolder refuses an entry whose role or holder does not exist.
func (d *Datacentre) checkRoleAndHolder(a ACL) error {
	user, token, _ := strings.Cut(a.ID, "!")
	_, isRole := d.rolePrivileges(a.Role)
	_, isUser := d.state.Records[Users][user]
	_, isHolder := d.state.Records[Kind(a.Kind)][a.ID]
	isUser = isUser || user == rootUser

	switch {
	case !isRole:
		return Refuse("ACL update failed: role '%s' does not exist", a.Role)
	case a.Kind == "group" && !isHolder:
		return Refuse("ACL update failed: group '%s' does not exist", a.ID)
	case a.Kind == "user" && !isUser:
		return Refuse("ACL update failed: user '%s' does not exist", user)
	case a.Kind == "token" && !isUser:
		return Refuse("ACL update failed: no such user ('%s')", user)
	case a.Kind == "token" && !isHolder:
		return Refuse("ACL update failed: no such token '%s' for user '%s'", token, user)
	default:
		return nil
	}
}

// Authorise checks that a user or token has one of the privileges on the path. All permission checks end here.
func (d *Datacentre) Authorise(user, path string, privileges ...string) error {
	return withLock(d, func() error { return d.authorise(user, path, privileges...) })
}

// Allowed reports whether Authorise succeeds.
func (d *Datacentre) Allowed(user, path string, privileges ...string) bool {
	return d.Authorise(user, path, privileges...) == nil
}

// authorise is Authorise with the lock held.
func (d *Datacentre) authorise(user, path string, privileges ...string) error {
	granted := d.permissions(user, path)

	for _, p := range privileges {
		if _, ok := granted[p]; ok {
			return nil
		}
	}

	return Forbidden(path + ", " + strings.Join(privileges, "|"))
}

// Permissions returns the privileges of a user or token on a path, and whether each propagates to the paths below.
func (d *Datacentre) Permissions(user, path string) map[string]bool {
	return withLock(d, func() map[string]bool { return d.permissions(user, NormalizePath(path)) })
}

// permissions requires the lock. A token with privilege separation has the privileges that both it and its user have.
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
		roles = d.effectiveRoles(user, path)
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

	shared := map[string]bool{}
	owners := d.permissions(owner, path)

	for p, propagate := range privileges {
		if ownerPropagates, ok := owners[p]; ok {
			shared[p] = propagate && ownerPropagates
		}
	}

	return shared
}

// effectiveRoles returns the roles on a path, including those from a VM's pool. NoAccess excludes all others.
func (d *Datacentre) effectiveRoles(user, path string) map[string]bool {
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

// pathRoles walks down the path: entries of a deeper level replace those above, a user's own replace those of the
// user's groups.
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
