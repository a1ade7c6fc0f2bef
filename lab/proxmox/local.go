package proxmox

import (
	"context"
	"strings"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

// Local is the API as root calls it on a host itself, without a connection: pvesh.
type Local struct{ server *Server }

// NewLocal returns the API of a host.
func NewLocal(dc *datacentre.Datacentre, host string) *Local {
	return &Local{&Server{dc: dc, host: host, routes: newRouter(), stats: NewStats()}}
}

// ErrNoHandler is a path or method that Proxmox' API does not have here.
type ErrNoHandler struct{ Command, Path string }

// Error is pvesh's own text.
func (e ErrNoHandler) Error() string {
	return "No '" + e.Command + "' handler defined for '" + e.Path + "'"
}

// Call carries out a command of pvesh: get, create, set or delete. "localhost" is the host itself.
func (l *Local) Call(ctx context.Context, command, path string, values map[string][]string) (any, error) {
	method := map[string]string{"get": "GET", "create": "POST", "set": "PUT", "delete": "DELETE"}[command]
	segments := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })

	if len(segments) > 1 && segments[0] == "nodes" && segments[1] == localhost {
		segments[1] = l.server.host
	}

	rt, vars := l.server.routes.match(method, segments)
	if rt == nil {
		return nil, ErrNoHandler{command, "/" + strings.Join(segments, "/")}
	}

	if node := vars["node"]; node != "" && node != l.server.host && l.server.offline(node) {
		return nil, &datacentre.Error{Status: statusNoRoute, Message: "No route to host"}
	}

	r := &request{
		ctx: ctx, server: l.server, dc: l.server.dc, route: rt, user: "root@pam", vars: vars, params: params(values),
	}

	data, err := l.server.carryOut(r)
	if list, ok := data.(listing); ok {
		data = list.rows
	}

	return data, err
}

// Boolean says that the parameter of a call is a flag, which may stand without a value.
func (l *Local) Boolean(command, path, name string) bool {
	method := map[string]string{"get": "GET", "create": "POST", "set": "PUT", "delete": "DELETE"}[command]

	rt, _ := l.server.routes.match(method, strings.FieldsFunc(path, func(c rune) bool { return c == '/' }))
	if rt == nil {
		return false
	}

	rule, known := rt.rule(name)

	return known && rule.Type == schema.Boolean
}
