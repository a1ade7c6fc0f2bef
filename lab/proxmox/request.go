package proxmox

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

const (
	apiPrefix = "/api2/json"
	// failedLoginDelay is how long PVE delays the response to a failed authentication.
	failedLoginDelay = 3 * time.Second
)

// errNoRoute is a PVE host's response for another host that it cannot reach.
var errNoRoute = datacentre.NewError(595, "No route to host")

// request is a call to a handler.
type request struct {
	ctx    context.Context
	server *Server
	dc     *datacentre.Datacentre
	route  *route
	// user is "root@pam" or "root@pam!token".
	user string
	vars map[string]string
	// params are the parameters, without those of the path.
	params datacentre.Config
	file   []byte // of an upload
}

// handle executes a request; with errReset, the connection is reset instead of a response.
func (s *Server) handle(req *http.Request, body []byte) (any, error) {
	path, found := strings.CutPrefix(req.URL.Path+"/", apiPrefix+"/")

	switch {
	case len(req.TransferEncoding) > 0:
		return nil, datacentre.NewError(http.StatusNotImplemented, "chunked transfer encoding not supported")
	case req.Method == http.MethodPatch:
		return nil, errWithoutBody(http.StatusNotImplemented, "method 'PATCH' not available")
	case !found:
		return nil, datacentre.NewError(http.StatusNotFound, "no such file '%s'", req.URL.Path)
	}

	plain := normalizePath(path)
	rt, vars := s.routes.match(req.Method, plain)
	s.stats.count(rt)

	fault, hit := s.dc.RequestFault(req.Method, plain)
	if hit {
		if err := s.sleep(fault.Delay); err != nil || fault.Reset && !fault.After {
			return nil, errReset
		}

		if fault.Status != 0 || fault.Message != "" {
			return nil, datacentre.NewError(cmp.Or(fault.Status, http.StatusInternalServerError), "%s", fault.Message)
		}
	}

	data, err := s.dispatch(&request{ctx: s.ctx, server: s, dc: s.dc, route: rt, vars: vars}, req, plain, body)

	if hit && fault.Reset {
		return nil, errReset
	}

	return data, err
}

// errWithoutBody is an error response without a body, which PVE's server sends before it calls the API.
func errWithoutBody(status int, message string) error {
	return &datacentre.Error{Status: status, Message: message, Bare: true}
}

// page is a part of a list, with the list's length.
type page struct {
	rows  any
	total int
}

// errNoMethod is PVE's error for a call that its release does not have.
func errNoMethod(method, path string) error {
	return datacentre.NewError(http.StatusNotImplemented, "Method '%s %s' not implemented", method, path)
}

func (s *Server) dispatch(r *request, req *http.Request, path string, body []byte) (any, error) {
	if r.route == nil || r.route.Permissions.User != "world" {
		user, err := s.authenticate(req)
		if err != nil {
			return nil, s.delayRefusal(err)
		}

		r.user = user
	}

	if r.route == nil {
		return nil, errNoMethod(req.Method, path)
	}

	// The host in the path handles the call: checking it comes first.
	err := r.checkReachable()
	if err != nil {
		return nil, err
	}

	kind := req.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "multipart/form-data") && strings.HasSuffix(r.route.path, "/upload") {
		r.params, r.file, err = readUpload(req, body)
	} else {
		r.params, err = readParams(req, body)
	}

	if err != nil {
		return nil, err
	}

	data, err := s.execute(r)

	var e *datacentre.Error
	if errors.As(err, &e) && e.Status == http.StatusUnauthorized {
		return nil, s.delayRefusal(err)
	}

	return data, err
}

// execute checks permissions and parameters, and calls the handler.
func (s *Server) execute(r *request) (any, error) {
	// As in Proxmox, permissions are checked before parameters.
	if err := r.authorise(); err != nil {
		return nil, err
	}

	if err := r.checkParams(); err != nil {
		return nil, err
	}

	unlock, err := r.lockCluster()
	if err != nil {
		return nil, err
	}
	defer unlock()

	return r.route.handle(r)
}

// clusterFiles maps the paths of calls to the locks of the files in /etc/pve that they change.
var clusterFiles = map[string]string{
	"/access/": "user_cfg", "/pools": "user_cfg", "/cluster/mapping/pci": "mapping_pci_cfg",
}

// lockCluster takes the lock of the cluster-wide file that the call changes, which requires quorum.
func (r *request) lockCluster() (unlock func(), err error) {
	for prefix, file := range clusterFiles {
		if strings.HasPrefix(r.route.path, prefix) && r.route.method != http.MethodGet && r.route.path != "/access/ticket" {
			return r.dc.LockClusterFile(file)
		}
	}

	return func() {}, nil
}

// delayRefusal delays the response to a failed login.
func (s *Server) delayRefusal(err error) error {
	if s.sleep(failedLoginDelay) != nil {
		return errReset
	}

	return err
}

func (s *Server) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}

	return s.dc.Clock().Sleep(s.ctx, d)
}

// checkReachable checks that the host of the call exists and is online.
func (r *request) checkReachable() error {
	if r.vars["node"] == "" || r.node() == r.server.host {
		return nil
	}

	if err := r.dc.CheckHost(r.node()); err != nil {
		return err
	}

	if !r.host().Online {
		return errNoRoute
	}

	return nil
}

// object is a JSON object in a response.
type object = map[string]any

//go:embed answers.json
var answers []byte

// staticFields returns the fields that are the same for all objects of a kind.
func staticFields(kind string) object {
	var all map[string]object
	if err := json.Unmarshal(answers, &all); err != nil {
		panic(err) // the file is embedded
	}

	return all[kind]
}

// boolInt returns a boolean as PVE writes it.
func boolInt(b bool) int {
	if b {
		return 1
	}

	return 0
}

// emptyList returns an empty list.
func emptyList(*request) (any, error) { return []object{}, nil }

// configValue returns a configuration value as Proxmox shows it: passwords are masked.
func configValue(key, value string) any {
	if key == "cipassword" {
		return "**********"
	}

	rule, _ := schema.Config(key)

	return typedValue(rule, value)
}

// typedValue converts a value to the type of its parameter.
func typedValue(rule schema.Rule, value string) any {
	n, err := strconv.ParseFloat(value, 64)

	switch {
	case rule.Type == schema.Array:
		return strings.Split(value, "\x00")
	case err == nil && slices.Contains([]string{schema.Boolean, schema.Integer, schema.Number}, rule.Type):
		return n
	default:
		return value
	}
}

// node returns the name of the call's host.
func (r *request) node() string {
	if r.vars["node"] == localhost {
		return r.server.host
	}

	return r.vars["node"]
}

// host returns the call's host, which exists.
func (r *request) host() datacentre.Host {
	h, _ := r.dc.Host(r.node())

	return h
}

// vmid returns the call's VMID, which checkParams validated.
func (r *request) vmid() int {
	n, _ := strconv.Atoi(r.fill("{vmid}"))

	return n
}

func (r *request) vm() (datacentre.VM, error) { return r.dc.GuestVM(r.node(), r.vmid()) }

// setNonEmpty sets a key unless the value is empty.
func setNonEmpty(o object, key, value string) {
	if value != "" {
		o[key] = value
	}
}
