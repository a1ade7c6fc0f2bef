package proxmox

import (
	"context"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

// Local is the API without a connection, as pvesh on a host calls it as root.
type Local struct{ server *Server }

// NewLocal returns a host's API.
func NewLocal(dc *datacentre.Datacentre, host string) *Local {
	return &Local{&Server{dc: dc, host: host, routes: newRouter(), stats: NewStats()}}
}

// route returns the route of a pvesh command: get, create, set or delete.
func (l *Local) route(command, path string) (*route, map[string]string) {
	method := map[string]string{"get": "GET", "create": "POST", "set": "PUT", "delete": "DELETE"}[command]

	return l.server.routes.match(method, normalizePath(path))
}

// Call executes a command. Booleans can have all spellings of PVE's command line.
func (l *Local) Call(ctx context.Context, command, path string, values map[string][]string) (any, error) {
	rt, vars := l.route(command, path)
	if rt == nil {
		return nil, datacentre.Refuse("No '%s' handler defined for '%s'", command, normalizePath(path))
	}

	p := datacentre.Config{}

	for name, value := range values {
		p.Set(name, value...)

		if rule, _ := rt.Rule(name); rule.Type == schema.Boolean {
			p[name] = schema.NormalizeBool(p[name])
		}
	}

	r := &request{ctx: ctx, server: l.server, dc: l.server.dc, route: rt, user: "root@pam", vars: vars, params: p}

	if err := r.checkReachable(); err != nil {
		return nil, err
	}

	data, err := l.server.execute(r)
	if list, ok := data.(page); ok {
		data = list.rows
	}

	return data, err
}

// Option returns whether a command has a parameter, and whether it is boolean.
func (l *Local) Option(command, path, name string) (known, boolean bool) {
	rt, _ := l.route(command, path)
	if rt == nil {
		return false, false
	}

	rule, known := rt.Rule(name)

	return known, rule.Type == "boolean"
}
