package proxmox

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/lab/schema"
)

// handler carries out a call that is permitted and whose parameters are right.
type handler func(*request) (any, error)

// route is a call that the lab implements. What it takes, and from whom, Proxmox's description says.
type route struct {
	schema.Method
	method string
	// path is PVE's own template, such as "/nodes/{node}/qemu/{vmid}/config"; form is what fits it.
	path    string
	pattern *regexp.Regexp
	handle  handler
}

// router finds routes.
type router []*route

// pathVariable is a part of a template whose characters are quoted; a last {volume} takes the rest of the path.
var pathVariable = regexp.MustCompile(`\\\{(\w+)\\\}`)

func newRouter() router {
	var r router

	for _, group := range []map[string]handler{
		accessCalls, accountCalls, clusterCalls, nodeCalls, qemuCalls, storageCalls, taskCalls, poolCalls, mappingCalls,
	} {
		for name, handle := range group {
			method, path, _ := strings.Cut(name, " ")
			pattern := pathVariable.ReplaceAllString(regexp.QuoteMeta(path), `(?P<$1>[^/ ]+)`)
			pattern = "^" + strings.Replace(pattern, "(?P<volume>[^/ ]+)", "(?P<volume>.+)", 1) + "$"
			r = append(
				r, &route{Method: schema.Call(name), method: method, path: path, pattern: regexp.MustCompile(pattern), handle: handle},
			)
		}
	}

	return r
}

// Methods returns the calls that the lab implements, as "METHOD /path/{template}", by path.
func Methods() []string {
	var list []string

	for _, rt := range newRouter() {
		list = append(list, rt.method+" "+rt.path)
	}

	slices.SortFunc(list, func(a, b string) int {
		return strings.Compare(a[strings.Index(a, "/"):]+a, b[strings.Index(b, "/"):]+b)
	})

	return list
}

// withSubject finds what the call is about first.
func withSubject[T any](lookup func(*request) (T, error), h func(*request, T) (any, error)) handler {
	return func(r *request) (any, error) {
		subject, err := lookup(r)
		if err != nil {
			return nil, err
		}

		return h(r, subject)
	}
}

// rows lists things; one without a row is not shown.
func rows[T any](things []T, row func(T) object) []object {
	list := []object{}

	for _, thing := range things {
		if o := row(thing); o != nil {
			list = append(list, o)
		}
	}

	return list
}

// match finds the route of a call: a fixed segment goes before a variable one.
func (r router) match(method, path string) (best *route, vars map[string]string) {
	for _, rt := range r {
		values := rt.pattern.FindStringSubmatch(path)
		if rt.method != method || values == nil || best != nil && len(values) > len(vars) {
			continue
		}

		best, vars = rt, map[string]string{}
		for i, name := range rt.pattern.SubexpNames()[1:] {
			vars[name] = values[i+1]
		}
	}

	return best, vars
}

// normalizePath is a path as PVE reads it: with one slash between its segments, and none at its end.
func normalizePath(path string) string {
	return "/" + strings.Join(strings.FieldsFunc(path, func(c rune) bool { return c == '/' }), "/")
}

// fill puts the call's values into a template.
func (r *request) fill(template string) string {
	for k, v := range r.vars {
		template = strings.ReplaceAll(template, "{"+k+"}", v)
	}

	for k, v := range r.params {
		template = strings.ReplaceAll(template, "{"+k+"}", v)
	}

	return template
}

// Stats counts requests.
type Stats struct {
	mu     sync.Mutex
	routes map[string]int
}

// NewStats returns counters at zero.
func NewStats() *Stats { return &Stats{routes: map[string]int{}} }

// Routes returns the counts by "METHOD /path/{template}"; calls that PVE does not know are under "unknown".
func (s *Stats) Routes() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return maps.Clone(s.routes)
}

// Reset sets the counters to zero.
func (s *Stats) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()

	clear(s.routes)
}

func (s *Stats) count(rt *route) {
	key := "unknown"
	if rt != nil {
		key = rt.method + " " + rt.path
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.routes[key]++
}
