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

// escalation is a privilege with which its holder can become Administrator, or root on hosts, if it is granted on the
// path or inherited by it.
type escalation struct {
	privilege, path string
	below           bool // also if it is granted on a path below
}

// escalations grant privileges, change accounts or groups, or reach what hosts do as root: shells, storages with any
// path (source: pve-storage, API2/Storage/Config.pm), mappings of any device or folder (pve-manager,
// API2/Cluster/Mapping), and with Sys.Modify on / disks, privileged containers (pve-storage, API2/Disks;
// pve-container, API2/LXC.pm).
func escalations() []escalation {
	return []escalation{
		{"Permissions.Modify", "/", false},
		{"Permissions.Modify", "/access", true},
		{"Permissions.Modify", "/nodes", true},
		{"Permissions.Modify", "/storage", false},
		{"Permissions.Modify", "/mapping", true},
		{"Realm.Allocate", "/access", true},
		{"User.Modify", "/access/groups", true},
		{"Sys.Modify", "/", false},
		{"Sys.Modify", "/access", true},
		{"Sys.Modify", "/nodes", true},
		{"Sys.Console", "/nodes", true},
		{"Datastore.Allocate", "/storage", false},
		{modifyMapping, "/mapping", true},
	}
}

// Excess lists such privileges, each with the first path where it is granted, unless one of the [Roles] has it there.
func (g Granted) Excess() []string {
	var excess []string

	for _, e := range escalations() {
		for _, path := range slices.Sorted(maps.Keys(g)) {
			propagates, granted := g[path][e.privilege]
			applies := path == e.path || e.below && strings.HasPrefix(path, e.path+"/")
			inherited := propagates && (path == "/" || strings.HasPrefix(e.path, path+"/"))

			if granted && (applies || inherited) && documentedAt(e.privilege, path, propagates) == nil {
				excess = append(excess, e.privilege+" on "+path)

				break
			}
		}
	}

	return slices.Compact(excess)
}

// Escalating lists the privileges of the [Roles] with which their holder can become root or Administrator, where they
// are granted.
func (g Granted) Escalating() []string {
	var list []string

	for _, path := range slices.Sorted(maps.Keys(g)) {
		for _, privilege := range slices.Sorted(maps.Keys(g[path])) {
			if n := documentedAt(privilege, path, g[path][privilege]); n != nil && n.Escalates {
				list = append(list, privilege+" on "+path)
			}
		}
	}

	return list
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

// documentedAt returns the need of a role for a privilege on this path that propagates as far; nil = none.
func documentedAt(privilege, path string, propagates bool) *Need {
	for _, r := range Roles() {
		for _, n := range r.Needs {
			if n.Privilege == privilege && isAt(n.Path, path) && (!propagates || Propagates(path)) {
				return &n
			}
		}
	}

	return nil
}

// isAt reports whether a path of a [Need] stands for a path.
func isAt(pattern, path string) bool {
	above, _, named := strings.Cut(pattern, "<")
	name, below := strings.CutPrefix(path, above)

	return pattern == path || named && below && name != "" && !strings.Contains(name, "/")
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
