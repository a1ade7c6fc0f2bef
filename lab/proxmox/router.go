package proxmox

import (
	"strings"

	"talos-proxmox/lab/schema"
)

// route is a row of the API's table.
type route struct {
	method string
	// path is PVE's own template, such as "/nodes/{node}/qemu/{vmid}/config"; a last {volume} takes the rest of the path.
	path string
	// params are the names of the parameters beside those of the path; required ones end in "*". "config" stands for all
	// keys of a VM's configuration. What their values must be is in package schema.
	params string
	// privilege is checked on path2 (a template too), "A|B" meaning one of them; empty where being someone is enough.
	privilege, path2 string
	// allow is the check of a call whose privileges depend on more than its path.
	allow func(*request) error
	// world routes are open to everyone.
	world  bool
	handle func(*request) (any, error)

	segments []string
	rules    map[string]schema.Rule
	config   bool
}

// router finds routes.
type router struct {
	routes []*route
}

func newRouter() *router {
	r := &router{}

	for _, group := range [][]route{
		accessRoutes(), clusterRoutes(), nodeRoutes(), qemuRoutes(), powerRoutes(), storageRoutes(), taskRoutes(),
		poolRoutes(), mappingRoutes(),
		aclRoutes(), accountRoutes(),
	} {
		for _, rt := range group {
			rt.prepare()
			r.routes = append(r.routes, &rt)
		}
	}

	return r
}

// match finds the route of a call: a fixed segment goes before a variable one.
func (r *router) match(method string, segments []string) (*route, map[string]string) {
	var (
		best *route
		vars map[string]string
	)

	for _, rt := range r.routes {
		if rt.method != method {
			continue
		}

		if v, ok := rt.bind(segments); ok && (best == nil || len(v) < len(vars)) {
			best, vars = rt, v
		}
	}

	return best, vars
}

func (rt *route) bind(segments []string) (map[string]string, bool) {
	vars := map[string]string{}

	for i, want := range rt.segments {
		if i >= len(segments) {
			return nil, false
		}

		name, variable := strings.CutPrefix(want, "{")
		name = strings.TrimSuffix(name, "}")

		switch {
		case variable && name == "volume":
			vars[name] = strings.Join(segments[i:], "/")

			return vars, true
		case variable:
			vars[name] = segments[i]
		case want != segments[i]:
			return nil, false
		}
	}

	return vars, len(segments) == len(rt.segments)
}

// fill puts the call's values into a template.
func (r *request) fill(template string) string {
	for k, v := range r.vars {
		template = strings.ReplaceAll(template, "{"+k+"}", v)
	}

	for k := range r.params {
		template = strings.ReplaceAll(template, "{"+k+"}", r.params.get(k))
	}

	return template
}
