package preflight

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
)

// autoscaledPools returns the pools that an autoscaler adds machines to.
func autoscaledPools(plan *spec.Plan) (pools []spec.AutoscaledPool) {
	for _, c := range plan.Clusters {
		pools = append(pools, c.Autoscaled...)
	}

	return pools
}

// needsOnCloned returns needs on the templates that the program lets autoscalers clone.
func (c *checker) needsOnCloned(privilege string) []need {
	return needsAt(c.planned.templates, func(t template) string {
		if len(t.ClonedBy) == 0 {
			return ""
		}

		return fmt.Sprintf("/vms/%d", t.VMID)
	}, privilege)
}

// readAutoscalers reads what autoscalers' users may do. Proxmox shows that to holders of Sys.Audit on /access, which
// the documented roles do not have.
func (r *reader) readAutoscalers(ctx context.Context) {
	if !r.site.Rights.Has("/access", "Sys.Audit") {
		return
	}

	for _, pool := range autoscaledPools(r.Plan) {
		get(ctx, r, "what "+pool.User+" may do", "/access/permissions?userid="+url.QueryEscape(pool.User),
			func(s *Site, rights map[string]map[string]proxmoxapi.Boolean) {
				if s.Autoscalers == nil {
					s.Autoscalers = map[string]permissions.Granted{}
				}

				s.Autoscalers[pool.User] = parseRights(rights)
			})
	}
}

// checkAutoscalers checks what an administrator has to prepare for autoscalers: roles, the resource pool, and what
// their users may do.
func (c *checker) checkAutoscalers() {
	for _, pool := range autoscaledPools(c.plan) {
		c.checkPool("", pool.Path+".resourcePool", pool.ResourcePool)

		rights, known := c.site.Autoscalers[pool.User]

		for _, role := range permissions.AutoscalerRoles() {
			if !c.checkRole(pool.Path, nil, role) || !known {
				continue
			}

			lacks := lacks(role, rights, func(n permissions.Need) []need { return c.needsOfAutoscaler(pool, n) })
			for _, path := range slices.Sorted(maps.Keys(lacks)) {
				c.problem("", pool.Path+".user", pool.User, "may not %s on %s: as root on a host, `%s` gives it the role %s; "+
					"docs/permissions.md#autoscalers has all of them", strings.Join(lacks[path].privileges, ", "),
					lacks[path].pathList(), permissions.Holder{User: pool.User}.Grant(path, role.ID), role.ID)
			}
		}
	}
}

// needsOfAutoscaler returns where a pool's autoscaler needs a privilege of the table. On templates, the program grants
// it; a disc with a machine configuration goes to any datastore that takes them.
func (c *checker) needsOfAutoscaler(pool spec.AutoscaledPool, n permissions.Need) []need {
	on := func(path string, or ...string) []need {
		return []need{{privileges: []string{n.Privilege}, path: path, or: or}}
	}

	switch n.Path {
	case permissions.OnPool:
		return on("/pool/" + pool.ResourcePool)
	case permissions.OnDisks:
		return on("/storage/" + pool.Datastore)
	}

	var needs []need

	for _, t := range c.planned.templates {
		if t.Name != pool.Template || !slices.Contains(pool.Hosts, t.Host) {
			continue
		}

		host := c.site.host(t.Host)

		switch n.Path {
		case "/nodes":
			needs = append(needs, on("/nodes/"+t.Host)...)
		case "/sdn/zones/localnetwork":
			if bridge, found := host.bridge(t.Bridge); !found || bridge.Type != typeVNet {
				needs = append(needs, on(n.Path+"/"+t.Bridge)...)
			}
		case permissions.OnImages:
			var discs []string
			for _, name := range host.storagesFor("iso") {
				discs = append(discs, "/storage/"+name)
			}

			if len(discs) > 0 {
				needs = append(needs, on(discs[0], discs[1:]...)...)
			}
		}
	}

	return needs
}
