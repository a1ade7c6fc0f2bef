package permissions

import (
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
