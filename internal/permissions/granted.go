package permissions

import (
	"maps"
	"slices"
	"strings"
)

// Granted has the privileges of a user or token as Proxmox reports them: by path and privilege, whether it propagates.
// nil = unknown.
type Granted map[string]map[string]bool

// Has reports whether any of the privileges is granted on a path. A path that is not listed inherits from the nearest
// listed path above it; paths without propagating privileges count as not listed.
func (g Granted) Has(path string, privileges ...string) bool {
	isGranted := func(has map[string]bool, inherited bool) bool {
		return slices.ContainsFunc(privileges, func(p string) bool {
			propagates, ok := has[p]

			return ok && (!inherited || propagates)
		})
	}
	if has, listed := g[path]; listed {
		return isGranted(has, false)
	}

	for above := parentPath(path); above != ""; above = parentPath(above) {
		has := g[above]
		for _, propagates := range has {
			if propagates {
				return isGranted(has, true)
			}
		}
	}

	return false
}

// escalations are privileges with which their holder can become Administrator, if granted on the path, below it, or
// inherited by it: by granting privileges, changing accounts or groups, or opening shells on hosts.
var escalations = []struct{ privilege, path string }{ //nolint:gochecknoglobals // a table
	{"Permissions.Modify", "/"},
	{"Permissions.Modify", "/access"},
	{"Realm.Allocate", "/access"},
	{"User.Modify", "/access/groups"},
	{"Sys.Modify", "/access"},
	{"Sys.Console", "/nodes"},
}

// Excess lists such privileges that none of the [Roles] has there, each with the first path where it is granted.
func (g Granted) Excess() []string {
	var excess []string

	for _, e := range escalations {
		for _, path := range slices.Sorted(maps.Keys(g)) {
			propagates, granted := g[path][e.privilege]
			applies := path == e.path || e.path != "/" && strings.HasPrefix(path, e.path+"/")
			inherited := propagates && (path == "/" || strings.HasPrefix(e.path, path+"/"))

			if granted && (inherited || applies && !isNeeded(e.privilege, path)) {
				excess = append(excess, e.privilege+" on "+path)

				break
			}
		}
	}

	return slices.Compact(excess)
}

// Unused lists privileges that no role has anywhere, each with the first path where it is granted. Audit privileges are
// left out: previews check more with them.
func (g Granted) Unused() []string {
	used := Privileges()
	first := map[string]string{}

	for _, path := range slices.Sorted(maps.Keys(g)) {
		for privilege := range g[path] {
			_, known := first[privilege]
			if !known && !slices.Contains(used, privilege) && !strings.HasSuffix(privilege, ".Audit") {
				first[privilege] = path
			}
		}
	}

	unused := make([]string, 0, len(first))
	for _, privilege := range slices.Sorted(maps.Keys(first)) {
		unused = append(unused, privilege+" on "+first[privilege])
	}

	return unused
}

// isNeeded reports whether a role has the privilege on exactly this path.
func isNeeded(privilege, path string) bool {
	return slices.ContainsFunc(Roles(), func(r Role) bool {
		return slices.ContainsFunc(r.Needs, func(n Need) bool { return n.Privilege == privilege && n.Path == path })
	})
}

// parentPath returns the path above; empty for the root.
func parentPath(path string) string {
	switch i := strings.LastIndex(path, "/"); {
	case path == "/" || i < 0:
		return ""
	case i == 0:
		return "/"
	default:
		return path[:i]
	}
}
