package kube

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Backend is the cluster that a server shows.
type Backend interface {
	// Version is the API server's version with its "v".
	Version() string
	// Health lists the checks of /readyz: name → problem, empty when fine.
	Health() map[string]string
	// Revision is etcd's revision.
	Revision() uint64
	// List returns every object of a resource, by plural name, sorted by namespace and name.
	List(resource string) []Object
	// DeleteNode removes a Node object; false when there is none.
	DeleteNode(name string) bool
	// PatchNode changes a node's labels, annotations (nil removes one), taints and schedulability as far as the user may.
	PatchNode(u User, name string, p NodePatch) *StatusError
	// Put creates a stored object, or replaces one, and returns its name.
	Put(k *Kind, namespace string, content map[string]any, replace bool) (string, *StatusError)
	// Delete removes a stored object; false when there is none.
	Delete(k *Kind, namespace, name string) bool
	// Log is what a pod has printed; false when there is no such pod.
	Log(namespace, name string) (string, bool)
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Server is the HTTP side of a Kubernetes API server. Clients authenticate with certificates, which the TLS listener must have verified.
type Server struct{ backend Backend }

// NewServer returns the handler for a backend.
func NewServer(b Backend) *Server { return &Server{backend: b} }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/livez":
		s.health(w, r, "livez")

		return
	case "/healthz":
		s.health(w, r, "healthz")

		return
	case "/readyz":
		s.health(w, r, "readyz")

		return
	case "/version":
		s.version(w)

		return
	}

	user := identify(r.TLS)
	if err := authorize(user, r); err != nil {
		writeError(w, err)

		return
	}

	if problem := s.backend.Health()["etcd"]; problem != "" {
		writeStatus(w, http.StatusInternalServerError, "InternalError", "etcdserver: "+problem)

		return
	}

	if body, ok := discovery(strings.TrimSuffix(r.URL.Path, "/")); ok {
		writeJSON(w, http.StatusOK, body)

		return
	}

	s.resource(w, r, user)
}

func (s *Server) health(w http.ResponseWriter, r *http.Request, check string) {
	checks := s.backend.Health()
	names := make([]string, 0, len(checks))

	for name := range checks {
		names = append(names, name)
	}

	slices.Sort(names)

	var text strings.Builder

	healthy := true

	for _, name := range names {
		// A server that only waits for its storage is alive, not ready.
		if checks[name] == "" || check == "livez" {
			fmt.Fprintf(&text, "[+]%s ok\n", name)
		} else {
			healthy = false

			fmt.Fprintf(&text, "[-]%s failed: %s\n", name, checks[name])
		}
	}

	switch {
	case !healthy:
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, text.String()+check+" check failed\n")
	case r.URL.Query().Has("verbose"):
		_, _ = io.WriteString(w, text.String()+check+" check passed\n")
	default:
		_, _ = io.WriteString(w, "ok")
	}
}

func (s *Server) version(w http.ResponseWriter) {
	version := s.backend.Version()
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)

	minor := ""
	if len(parts) > 1 {
		minor = parts[1]
	}

	writeJSON(w, http.StatusOK, map[string]string{
		"major": parts[0], "minor": minor, "gitVersion": version, "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
		"goVersion": "go1.25", "compiler": "gc", "platform": "linux/amd64",
	})
}

// route is a request's path taken apart.
type route struct {
	kind            *Kind
	namespace, name string
	subresource     string
}

func parse(path string) (route, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")

	group := ""

	switch {
	case len(parts) > 2 && parts[0] == "api" && parts[1] == "v1":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis" && parts[2] == "v1":
		group, parts = parts[1], parts[3:]
	default:
		return route{}, false
	}

	var r route

	if parts[0] == "namespaces" && len(parts) > 2 {
		r.namespace, parts = parts[1], parts[2:]
	}

	i := slices.IndexFunc(kinds, func(k *Kind) bool { return k.Group == group && k.Plural == parts[0] })
	if i < 0 || len(parts) > 3 {
		return route{}, false
	}

	r.kind = kinds[i]
	if len(parts) > 1 {
		r.name = parts[1]
	}

	if len(parts) > 2 {
		r.subresource = parts[2]
	}

	return r, true
}

func (s *Server) resource(w http.ResponseWriter, r *http.Request, user User) {
	target, ok := parse(r.URL.Path)
	if !ok {
		writeStatus(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")

		return
	}

	switch {
	case r.Method == http.MethodGet && target.subresource == "":
		s.get(w, r, target)
	case r.Method == http.MethodDelete && target.kind.Kind == "Node" && target.name != "":
		if !s.backend.DeleteNode(target.name) {
			target.notFound(w)

			return
		}

		writeJSON(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success"})
	case r.Method == http.MethodPatch && target.kind.Kind == "Node" && target.name != "":
		s.patch(w, r, target, user)
	case r.Method == http.MethodGet && target.subresource == "log" && target.kind.Kind == "Pod":
		s.log(w, target)
	case target.kind.Stored && (r.Method == http.MethodPost && target.name == "" || r.Method == http.MethodPut && target.name != "") && target.subresource == "":
		s.write(w, r, target)
	case target.kind.Stored && r.Method == http.MethodDelete && target.name != "":
		s.remove(w, target)
	default:
		writeStatus(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "the lab's Kubernetes API does not serve this request: it reads, patches nodes, and creates, replaces and deletes what it stores")
	}
}

func (s *Server) objects(target route) []Object {
	all := s.backend.List(target.kind.Plural)

	return slices.DeleteFunc(all, func(o Object) bool {
		return target.namespace != "" && o.Metadata.Namespace != target.namespace || target.name != "" && o.Metadata.Name != target.name
	})
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, target route) {
	if watch, _ := strconv.ParseBool(r.URL.Query().Get("watch")); watch {
		s.watch(w, r, target)

		return
	}

	revision := strconv.FormatUint(s.backend.Revision(), 10)
	objects := selected(r.URL.Query(), s.objects(target))

	if target.name != "" && len(objects) == 0 {
		target.notFound(w)

		return
	}

	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
	}

	switch {
	case wantsTable(r):
		writeJSON(w, code, target.kind.table(objects, revision, r.URL.Query().Get("includeObject")))
	case target.name != "":
		writeJSON(w, code, objects[0])
	default:
		writeJSON(w, http.StatusOK, map[string]any{
			"kind": target.kind.Kind + "List", "apiVersion": target.kind.APIVersion(), "metadata": map[string]any{"resourceVersion": revision}, "items": objects,
		})
	}
}

func wantsTable(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "as=Table") }

func (t route) notFound(w http.ResponseWriter) {
	writeStatus(w, http.StatusNotFound, "NotFound", fmt.Sprintf("%s %q not found", t.kind.Plural, t.name))
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(encode(body)) //nolint:gosec // JSON, and nobody's browser
}

func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	writeJSON(w, code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "message": message, "reason": reason, "code": code,
	})
}
