// Package kube is the lab's model of a Kubernetes API server: it serves nodes, and what the program's health gate reads
// about GPUs. Everything else needs the real one.
package kube

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/version"
)

// server serves the API. Clients authenticate with certificates, which the TLS listener must have verified.
type server struct{ machine Machine }

// NewServer returns the handler of a control plane's API server.
func NewServer(m Machine) http.Handler {
	s := &server{m}
	public, protected := http.NewServeMux(), http.NewServeMux()

	for _, check := range []string{"livez", "readyz", "healthz"} {
		public.HandleFunc("GET /"+check, s.health)
	}

	public.HandleFunc("GET /version", handle(s.version))
	public.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := authorize(r); err != nil {
			write(w, nil, err)
		} else if !s.machine.Healthy() {
			write(w, nil, apierrors.NewInternalError(errors.New("etcdserver: no leader")))
		} else {
			protected.ServeHTTP(w, r)
		}
	})

	for path, find := range map[string]func(*http.Request) (any, error){
		"GET /api/v1/nodes":                         s.nodes,
		"GET /api/v1/nodes/{name}":                  s.node,
		"PATCH /api/v1/nodes/{name}":                s.patch,
		"DELETE /api/v1/nodes/{name}":               s.remove,
		"GET /api/v1/pods":                          s.pods,
		"GET /api/v1/namespaces/{namespace}/events": s.events,
		"GET /api/v1/persistentvolumes":             s.list("v1", "PersistentVolumeList", "persistentvolumes"),
		"GET /apis/apps/v1/daemonsets":              s.list("apps/v1", "DaemonSetList", "daemonsets"),
		"GET /apis/node.k8s.io/v1/runtimeclasses":   s.list("node.k8s.io/v1", "RuntimeClassList", "runtimeclasses"),
		"GET " + leaseList + "/{name}":              s.lease,
		"POST " + leaseList:                         s.createLease,
		"PUT " + leaseList + "/{name}":              s.updateLease,
		"/":                                         func(*http.Request) (any, error) { return nil, errNotServed },
	} {
		protected.HandleFunc(path, handle(find))
	}

	for path, body := range discovery {
		protected.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			// kubectl reads the available resources here, and shows the warning beside its own error.
			w.Header().Set("Warning", fmt.Sprintf("299 - %q", notServedMessage))
			write(w, body, nil)
		})
	}

	return public
}

const notServedMessage = "the lab's model of Kubernetes has nodes and what the health gate reads; for everything else: " +
	"make down, then make up KUBERNETES=real"

var errNotServed = statusError(http.StatusNotFound, metav1.StatusReasonNotFound, notServedMessage)

func statusError(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// authorize allows everything to members of system:masters, and to others only health and version.
func authorize(r *http.Request) error {
	user, groups := identify(r.TLS)
	if slices.Contains(groups, "system:masters") {
		return nil
	}

	return statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("forbidden: User %q cannot %s path %q", user, strings.ToLower(r.Method), r.URL.Path))
}

// identify returns the client's user and groups from its certificate.
func identify(state *tls.ConnectionState) (user string, groups []string) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return "system:anonymous", nil
	}

	subject := state.PeerCertificates[0].Subject

	return subject.CommonName, subject.Organization
}

func handle(find func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := find(r)

		code := http.StatusOK
		if r.Method == http.MethodPost {
			code = http.StatusCreated
		}

		writeAs(w, code, body, err)
	}
}

func write(w http.ResponseWriter, body any, err error) { writeAs(w, http.StatusOK, body, err) }

func writeAs(w http.ResponseWriter, code int, body any, err error) {
	var status apierrors.APIStatus

	switch {
	case errors.As(err, &status):
		refused := status.Status()
		refused.Kind, refused.APIVersion = "Status", "v1"
		code, body = int(refused.Code), refused
	case err != nil:
		code, body = http.StatusInternalServerError, apierrors.NewInternalError(err).Status()
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

func (s *server) health(w http.ResponseWriter, r *http.Request) {
	// A server that waits for its storage is alive but not ready.
	if r.URL.Path != "/livez" && !s.machine.Healthy() {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "[+]ping ok\n[-]etcd failed: no leader\nreadyz check failed\n")

		return
	}

	_, _ = io.WriteString(w, "ok")
}

func (s *server) version(*http.Request) (any, error) {
	v := s.machine.Version()
	parts := append(strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3), "", "")

	return version.Info{
		Major: parts[0], Minor: parts[1], GitVersion: v, GitTreeState: "clean", BuildDate: "1970-01-01T00:00:00Z",
		Compiler: "gc", Platform: "linux/amd64",
	}, nil
}

// discovery is what kubectl reads before it requests nodes.
var discovery = map[string]any{
	"GET /api": metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
	"GET /apis": metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{},
	},
	"GET /api/v1": metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
		APIResources: []metav1.APIResource{
			{
				Name: "nodes", SingularName: "node", Kind: "Node", Verbs: metav1.Verbs{"delete", "get", "list", "patch"},
				ShortNames: []string{"no"},
			},
			// Newcomers list pods first; the answer tells them what the model serves.
			{
				Name: "pods", SingularName: "pod", Kind: "Pod", Verbs: metav1.Verbs{"get", "list"}, Namespaced: true,
				ShortNames: []string{"po"},
			},
		},
	},
}

func (s *server) nodes(r *http.Request) (any, error) {
	if q := r.URL.Query(); q.Has("watch") || q.Has("labelSelector") {
		return nil, errNotServed
	}

	nodes := s.listNodes()
	if wantsTable(r) {
		return table(nodes), nil
	}

	return corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, Items: nodes}, nil
}

func wantsTable(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "as=Table") }

func (s *server) node(r *http.Request) (any, error) {
	nodes := s.listNodes()

	i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == r.PathValue("name") })
	if i < 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), r.PathValue("name"))
	}

	if wantsTable(r) {
		return table(nodes[i : i+1]), nil
	}

	return nodes[i], nil
}

// patches applies patches of a node by their content type.
var patches = map[string]func(before, patch []byte) ([]byte, error){
	string(types.MergePatchType): jsonpatch.MergePatch,
	string(types.StrategicMergePatchType): func(before, patch []byte) ([]byte, error) {
		return strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	},
}

// patch patches a node.
func (s *server) patch(r *http.Request) (any, error) {
	form := r.Header.Get("Content-Type")

	apply, supported := patches[form]
	if !supported {
		return nil, statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the lab's model of Kubernetes takes merge patches of nodes, not "+form)
	}

	patch, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}

	return s.patchNode(r.PathValue("name"), func(n *corev1.Node) error {
		before, err := json.Marshal(n)
		if err != nil {
			return err
		}

		after, err := apply(before, patch)
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}

		*n = corev1.Node{}
		if err := json.Unmarshal(after, n); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}

		return nil
	})
}

func (s *server) remove(r *http.Request) (any, error) {
	if err := s.deleteNode(r.PathValue("name")); err != nil {
		return nil, err
	}

	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
}

func (s *server) pods(r *http.Request) (any, error) {
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	node, _ := selector.RequiresExactMatch("spec.nodeName")

	return corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: s.listPods(node)}, nil
}

// events returns no events: a pod's status says what keeps it from running.
func (s *server) events(*http.Request) (any, error) {
	return corev1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: []corev1.Event{}}, nil
}

// list returns a handler that lists the objects of a resource.
func (s *server) list(version, kind, plural string) func(*http.Request) (any, error) {
	return func(*http.Request) (any, error) {
		c, unlock := s.machine.Cluster()
		defer unlock()

		return &unstructured.UnstructuredList{
			Object: map[string]any{"apiVersion": version, "kind": kind}, Items: c.Objects(plural),
		}, nil
	}
}
