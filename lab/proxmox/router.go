package proxmox

import (
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

// handler carries out a call that is permitted and whose parameters are right.
type handler func(*request) (any, error)

// route is a call that the lab implements. What it takes, and from whom, Proxmox's description says.
type route struct {
	schema.Method
	method string
	// path is PVE's own template, such as "/nodes/{node}/qemu/{vmid}/config"; a last {volume} takes the rest of the path.
	path     string
	segments []string
	handle   handler
}

// router finds routes.
type router struct {
	routes []*route
}

func newRouter() *router {
	r := &router{}

	for _, group := range []map[string]handler{
		accessCalls, accountCalls, clusterCalls, nodeCalls, qemuCalls, storageCalls, taskCalls, poolCalls, mappingCalls,
	} {
		for name, handle := range group {
			method, path, _ := strings.Cut(name, " ")
			r.routes = append(r.routes, &route{
				Method: schema.Call(name), method: method, path: path, segments: strings.Split(path[1:], "/"), handle: handle,
			})
		}
	}

	return r
}

// Methods returns the calls that the lab implements, as "METHOD /path/{template}", by path.
func Methods() []string {
	var list []string

	for _, rt := range newRouter().routes {
		list = append(list, rt.method+" "+rt.path)
	}

	slices.SortFunc(list, func(a, b string) int {
		return strings.Compare(a[strings.Index(a, "/"):]+a, b[strings.Index(b, "/"):]+b)
	})

	return list
}

// on finds what the call is about first.
func on[T any](named func(*request) (T, error), h func(*request, T) (any, error)) handler {
	return func(r *request) (any, error) {
		thing, err := named(r)
		if err != nil {
			return nil, err
		}

		return h(r, thing)
	}
}

// find is the one of a list that fits, or a refusal.
func find[T any](list []T, fits func(T) bool, absent string, id string) (found T, err error) {
	if i := slices.IndexFunc(list, fits); i >= 0 {
		return list[i], nil
	}

	return found, datacentre.Refuse(absent, id)
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
		case variable && strings.Contains(segments[i], " "):
			return nil, false
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
