package proxmox

import (
	"strconv"
	"strings"

	"proxmox-talos/lab/datacentre"
)

// route is a row of the API's table.
type route struct {
	method string
	// path is PVE's own template, such as "/nodes/{node}/qemu/{vmid}/config"; a last {volume} takes the rest of the path.
	path string
	// params are the names of the parameters beside those of the path; required ones end in "*". "config" stands for all keys of a VM's configuration.
	params string
	// privilege is checked on path2 (a template too), "A|B" meaning one of them; empty where being someone is enough.
	privilege, path2 string
	// allow is the check of a call whose privileges depend on more than its path.
	allow func(*request) error
	// world routes are open to everyone.
	world  bool
	handle func(*request) (any, error)

	segments []string
	allowed  map[string]bool
	required []string
	config   bool
}

func (rt *route) prepare() {
	rt.segments = strings.Split(strings.Trim(rt.path, "/"), "/")
	rt.allowed = map[string]bool{}

	for p := range strings.FieldsSeq(rt.params) {
		name, required := strings.CutSuffix(p, "*")

		switch {
		case name == "config":
			rt.config = true

			continue
		case required:
			rt.required = append(rt.required, name)
		}

		rt.allowed[name] = true
	}
}

// check validates a call's parameters: the one place for PVE's schema.
func (rt *route) check(r *request) error {
	wrong := map[string]string{}

	for name := range r.params {
		_, inPath := r.vars[name]
		if !rt.allowed[name] && !inPath && (!rt.config || datacentre.TypeOf(name) == datacentre.KeyUnknown) {
			wrong[name] = "property is not defined in schema and the schema does not allow additional properties"
		}
	}

	for _, name := range rt.required {
		if _, ok := r.params[name]; !ok {
			wrong[name] = "property is missing and it is not optional"
		}
	}

	for _, name := range []string{"vmid", "newid"} {
		v, inPath := r.vars[name]
		if !inPath {
			v = r.params.get(name)
		}

		if v == "" || name == "vmid" && !inPath && strings.Contains(v, ",") {
			continue
		}

		if n, err := strconv.Atoi(v); err != nil || n < 100 || n > 999999999 {
			wrong[name] = "invalid format - value does not look like a valid VM ID"
		}
	}

	if len(wrong) > 0 {
		return datacentre.ParameterError(wrong)
	}

	return nil
}

// router finds routes.
type router struct {
	routes []*route
}

func newRouter() *router {
	r := &router{}

	for _, group := range [][]route{
		accessRoutes(), clusterRoutes(), nodeRoutes(), qemuRoutes(), powerRoutes(), storageRoutes(), taskRoutes(), poolRoutes(), mappingRoutes(),
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
