package permissions

import (
	"maps"
	"slices"
	"strings"
)

// Granted is what Proxmox says that a user or token may do: by path, privilege to whether it holds below too.
// nil = not known.
type Granted map[string]map[string]bool

// Has says whether any of the privileges is granted on a path. Paths that are not listed have what the nearest one
// above them hands down; one where nothing is handed down counts as not listed.
func (g Granted) Has(path string, privileges ...string) bool {
	holds := func(has map[string]bool, below bool) bool {
		return slices.ContainsFunc(privileges, func(p string) bool {
			propagates, ok := has[p]

			return ok && (!below || propagates)
		})
	}
	if has, listed := g[path]; listed {
		return holds(has, false)
	}

	for above := parent(path); above != ""; above = parent(above) {
		has := g[above]
		for _, propagates := range has {
			if propagates {
				return holds(has, true)
			}
		}
	}

	return false
}

// escalations are privileges by which their holder makes himself Administrator, where they are granted on a path, below
// it, or handed down to it: he gives away rights, changes accounts or groups, or opens shells of hosts.
var escalations = []struct{ privilege, path string }{ //nolint:gochecknoglobals // a table
	{"Permissions.Modify", "/"},
	{"Permissions.Modify", "/access"},
	{"Realm.Allocate", "/access"},
	{"User.Modify", "/access/groups"},
	{"Sys.Modify", "/access"},
	{"Sys.Console", "/nodes"},
}

// Excess names such privileges that none of the [Roles] has there, each with the first path where it is granted.
func (g Granted) Excess() []string {
	var excess []string

	for _, e := range escalations {
		for _, path := range slices.Sorted(maps.Keys(g)) {
			propagates, granted := g[path][e.privilege]
			there := path == e.path || e.path != "/" && strings.HasPrefix(path, e.path+"/")
			handed := propagates && (path == "/" || strings.HasPrefix(e.path, path+"/"))

			if granted && (handed || there && !needed(e.privilege, path)) {
				excess = append(excess, e.privilege+" on "+path)

				break
			}
		}
	}

	return slices.Compact(excess)
}

// Unused names privileges that none of the roles has anywhere, each with the first path where it is granted. Those that
// only show something are left out: with more of them previews know more.
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

// needed says whether a role has the privilege on this very path.
func needed(privilege, path string) bool {
	return slices.ContainsFunc(Roles(), func(r Role) bool {
		return slices.ContainsFunc(r.Needs, func(n Need) bool { return n.Privilege == privilege && n.Path == path })
	})
}

// parent is the path above, empty for the root's.
func parent(path string) string {
	switch i := strings.LastIndex(path, "/"); {
	case path == "/" || i < 0:
		return ""
	case i == 0:
		return "/"
	default:
		return path[:i]
	}
}
