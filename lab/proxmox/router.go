package proxmox

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/lab/schema"
)

// handler executes a call with checked permissions and parameters.
type handler func(*request) (any, error)

// route is an implemented call. Its parameters and permissions come from Proxmox' API description.
type route struct {
	schema.Method
	method string
	// path is PVE's template, such as "/nodes/{node}/qemu/{vmid}/config"; pattern matches it.
	path    string
	pattern *regexp.Regexp
	handle  handler
}

type router []*route

// pathVariable is a variable of a quoted template. A final {volume} matches the rest of the path.
var pathVariable = regexp.MustCompile(`\\\{(\w+)\\\}`)

func newRouter() router {
	var r router

	for _, group := range []map[string]handler{
		accessCalls, accountCalls, clusterCalls, nodeCalls, qemuCalls, storageCalls, taskCalls, poolCalls, mappingCalls,
		haCalls, replicationCalls, firewallCalls, backupCalls,
	} {
		for name, handle := range group {
			method, path, _ := strings.Cut(name, " ")
			expr := pathVariable.ReplaceAllString(regexp.QuoteMeta(path), `(?P<$1>[^/ ]+)`)
			expr = strings.Replace(expr, "(?P<volume>[^/ ]+)", "(?P<volume>.+)", 1)
			pattern := regexp.MustCompile("^" + expr + "$")
			r = append(r, &route{schema.Call(name), method, path, pattern, handle})
		}
	}

	return r
}

// Methods returns the implemented calls as "METHOD /path/{template}", sorted by path.
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

// withSubject looks up the call's subject before it calls the handler.
func withSubject[T any](lookup func(*request) (T, error), h func(*request, T) (any, error)) handler {
	return func(r *request) (any, error) {
		subject, err := lookup(r)
		if err != nil {
			return nil, err
		}

		return h(r, subject)
	}
}

// rows returns the rows of a list; row omits an item by returning nil.
func rows[T any](items []T, row func(T) object) []object {
	list := []object{}

	for _, item := range items {
		if o := row(item); o != nil {
			list = append(list, o)
		}
	}

	return list
}

// match returns the route of a call. Fixed segments take precedence over variables.
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

// normalizePath returns a path with single slashes and without a trailing one, as PVE reads it.
func normalizePath(path string) string {
	return "/" + strings.Join(strings.FieldsFunc(path, func(c rune) bool { return c == '/' }), "/")
}

// fill expands a template with the call's values.
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

// NewStats returns empty counters.
func NewStats() *Stats { return &Stats{routes: map[string]int{}} }

// Routes returns the counts by "METHOD /path/{template}"; calls without a route count as "unknown".
func (s *Stats) Routes() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return maps.Clone(s.routes)
}

// Reset resets the counters.
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
