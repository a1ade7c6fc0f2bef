package proxmox

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"talos-proxmox/lab/datacentre"
)

const (
	apiPrefix = "/api2/json"
	// badLoginDelay is how long PVE lets wait who could not say who they are.
	badLoginDelay = 3 * time.Second
	// statusNoRoute is what a PVE host answers for another one that it cannot reach.
	statusNoRoute = 595
)

// request is a call on its way to its handler.
type request struct {
	ctx    context.Context
	server *Server
	dc     *datacentre.Datacentre
	route  *route
	// user is "root@pam" or "root@pam!token".
	user string
	vars map[string]string
	// params are those beside the path's.
	params datacentre.Config
}

// answer carries out a request; the error is errReset alone.
func (s *Server) answer(req *http.Request, body []byte) (reply, error) {
	if err := refuseForm(req); err != nil {
		return failure(err), nil
	}

	path, found := strings.CutPrefix(req.URL.Path+"/", apiPrefix+"/")
	if !found {
		return failure(&datacentre.Error{Status: http.StatusNotFound, Message: "no such file '" + req.URL.Path + "'"}), nil
	}

	plain := plainPath(path)
	rt, vars := s.routes.match(req.Method, plain)
	s.stats.count(rt)

	r := &request{ctx: s.ctx, server: s, dc: s.dc, route: rt, vars: vars}

	fault, hit := s.dc.RequestFault(req.Method, plain)
	if hit {
		if err := s.wait(fault.Delay); err != nil || fault.Reset && !fault.After {
			return reply{}, errReset
		}

		if fault.Status != 0 || fault.Message != "" {
			return failure(
				&datacentre.Error{Status: cmp.Or(fault.Status, http.StatusInternalServerError), Message: fault.Message},
			), nil
		}
	}

	data, err := s.call(r, req, plain, body)

	switch {
	case hit && fault.Reset, errors.Is(err, errReset):
		return reply{}, errReset
	case err != nil:
		return failure(err), nil
	}

	out := reply{status: http.StatusOK, data: data}
	if l, ok := data.(listing); ok {
		out.data, out.total = l.rows, &l.total
	}

	return out, nil
}

// refuseForm refuses what PVE's server does not read.
func refuseForm(req *http.Request) error {
	switch {
	case len(req.TransferEncoding) > 0:
		return &datacentre.Error{Status: http.StatusNotImplemented, Message: "chunked transfer encoding not supported"}
	case req.Method == http.MethodPatch:
		return bare{&datacentre.Error{Status: http.StatusNotImplemented, Message: "method 'PATCH' not available"}}
	default:
		return nil
	}
}

// bare is a refusal without a body: those of PVE's server, before the API is asked.
type bare struct{ error }

// Unwrap returns the refusal.
func (b bare) Unwrap() error { return b.error }

// listing is an answer with a total.
type listing struct {
	rows  any
	total int
}

func (s *Server) call(r *request, req *http.Request, plain string, body []byte) (any, error) {
	if s.offline(s.host) {
		return nil, errReset
	}

	if r.route == nil || r.route.Permissions.User != "world" {
		user, err := s.authenticate(req)
		if err != nil {
			return nil, s.late(bare{err})
		}

		r.user = user
	}

	if r.route == nil {
		return nil, &datacentre.Error{
			Status: http.StatusNotImplemented, Message: "Method '" + req.Method + " " + plain + "' not implemented",
		}
	}

	// The host of the path answers, so that nothing else is judged before it is found.
	if node := r.vars["node"]; node != "" && node != localhost {
		if _, err := r.host(); err != nil {
			return nil, err
		}

		if s.offline(node) {
			return nil, &datacentre.Error{Status: statusNoRoute, Message: "No route to host"}
		}
	}

	p, err := readParams(req, body)
	if err != nil {
		return nil, err
	}

	r.params = p
	data, err := s.carryOut(r)

	var e *datacentre.Error
	if errors.As(err, &e) && e.Status == http.StatusUnauthorized {
		return nil, s.late(err)
	}

	return data, err
}

// carryOut does what the call asks for, if its caller may and its parameters are right.
func (s *Server) carryOut(r *request) (any, error) {
	// As in Proxmox: without the permission, the parameters are not judged.
	if err := r.permit(); err != nil {
		return nil, err
	}

	if err := r.check(); err != nil {
		return nil, err
	}

	if err := r.lockCluster(); err != nil {
		return nil, err
	}

	return r.route.handle(r)
}

// clusterFiles are the files below /etc/pve that calls below a path change, by their locks.
var clusterFiles = map[string]string{
	"/access/": "user_cfg", "/pools": "user_cfg", "/cluster/mapping/pci": "mapping_pci_cfg",
}

// lockCluster refuses what changes a file of the whole cluster where the cluster has no quorum.
func (r *request) lockCluster() error {
	if r.route.method == http.MethodGet || r.route.path == "/access/ticket" {
		return nil
	}

	for prefix, file := range clusterFiles {
		if strings.HasPrefix(r.route.path, prefix) {
			return r.dc.NeedClusterLock(file)
		}
	}

	return nil
}

// late lets modelled time pass before a refused login is answered.
func (s *Server) late(err error) error {
	if s.wait(badLoginDelay) != nil {
		return errReset
	}

	return err
}

func (s *Server) wait(d time.Duration) error {
	if d <= 0 {
		return nil
	}

	return s.dc.Clock().Sleep(s.ctx, d)
}

func (s *Server) offline(host string) bool {
	h, ok := s.dc.Host(host)

	return ok && !h.Online
}

func failure(err error) reply {
	var e *datacentre.Error
	if !errors.As(err, &e) {
		e = &datacentre.Error{Status: http.StatusInternalServerError, Message: err.Error()}
	}

	return reply{status: e.Status, message: e.Message, fields: e.Fields, bare: errors.As(err, new(bare))}
}
