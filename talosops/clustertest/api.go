package clustertest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// API is a fake Kubernetes API that stores objects by path and serves what this program's clients request.
type API struct {
	Objects map[string]map[string]any
	Writes  []Write // in order, including refused ones
	// Refuse returns the status of a request to refuse, or nil. It is called for every request.
	Refuse func(r *http.Request, w Write) *metav1.Status
	// Answers are fixed responses by path.
	Answers map[string]any

	mu      sync.Mutex
	version int
}

// Write is a request that changes something.
type Write struct{ Method, Path, Type, Body string }

// NewAPI returns an API with these objects: JSON by path.
func NewAPI(objects map[string]string) *API {
	a := &API{Objects: map[string]map[string]any{}, Answers: map[string]any{
		"/readyz": "ok", "/version": map[string]any{"major": "1", "minor": "35", "gitVersion": "v1.35.1"},
	}}

	for at, text := range objects {
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			panic(err)
		}

		a.Objects[at] = object
	}

	return a
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")

	answer := a.respond(r)
	if status, refused := answer.(*metav1.Status); refused {
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		status.Status = metav1.StatusFailure

		w.WriteHeader(int(status.Code))
	}

	_ = json.NewEncoder(w).Encode(answer)
}

func (a *API) respond(r *http.Request) any {
	body, _ := io.ReadAll(r.Body)
	if r.Header.Get("Content-Type") == runtime.ContentTypeProtobuf { // Helm's release records
		if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
			body, _ = json.Marshal(object)
		}
	}

	write := Write{r.Method, r.URL.Path, r.Header.Get("Content-Type"), strings.TrimSpace(string(body))}
	existing := &unstructured.Unstructured{Object: a.Objects[r.URL.Path]}

	if r.Method != http.MethodGet {
		a.Writes = append(a.Writes, write)
	}

	if a.Refuse != nil {
		if status := a.Refuse(r, write); status != nil {
			return status
		}
	}

	switch {
	case a.Answers[r.URL.Path] != nil:
		return a.Answers[r.URL.Path]
	case strings.HasSuffix(r.URL.Path, "/eviction"):
		delete(a.Objects, path.Dir(r.URL.Path))

		return metav1.Status{Status: metav1.StatusSuccess}
	case r.Method == http.MethodPost, write.Type == "application/apply-patch+yaml":
		return a.put(write, existing)
	case r.Method == http.MethodGet && listKinds[path.Base(r.URL.Path)] != "":
		return a.list(r.URL.Path, r.URL.Query().Get("labelSelector"))
	case existing.Object == nil:
		return &metav1.Status{
			Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "not found",
			Details: &metav1.StatusDetails{Name: path.Base(r.URL.Path)},
		}
	}

	var given struct {
		Metadata      metav1.ObjectMeta
		Preconditions metav1.Preconditions
	}

	_ = json.Unmarshal(body, &given)

	if uid := given.Preconditions.UID; uid != nil && *uid != existing.GetUID() ||
		given.Metadata.ResourceVersion != "" && given.Metadata.ResourceVersion != existing.GetResourceVersion() {
		return &metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "Precondition failed"}
	}

	switch r.Method {
	case http.MethodPut:
		return a.put(write, existing)
	case http.MethodDelete:
		delete(a.Objects, r.URL.Path)
	}

	return existing.Object
}

// put stores an object. Applying the same object again does not change its resource version.
func (a *API) put(w Write, existing *unstructured.Unstructured) any {
	const applied = "applied"

	o := &unstructured.Unstructured{}
	_ = json.Unmarshal([]byte(w.Body), &o.Object)

	if w.Method == http.MethodPost {
		w.Path += "/" + o.GetName()
		a.Writes[len(a.Writes)-1].Path = w.Path
	}

	if existing.Object != nil && existing.Object[applied] == w.Body {
		return existing.Object
	}

	a.version++
	o.SetResourceVersion(fmt.Sprint(a.version))
	o.SetUID("u")

	o.Object[applied] = w.Body
	a.Objects[w.Path] = o.Object

	return o.Object
}

// listKinds maps resources that can be listed to their kinds.
var listKinds = map[string]string{ //nolint:gochecknoglobals // a table
	"nodes": "Node", "pods": "Pod", "secrets": "Secret", "storageclasses": "StorageClass", "helmreleases": "HelmRelease",
	"clusterrolebindings": "ClusterRoleBinding", "configmaps": "ConfigMap",
}

// list returns the objects of a resource, in all namespaces if the path names none.
func (a *API) list(at, selector string) any {
	wanted, _ := labels.Parse(selector)
	group, _, _ := strings.Cut(path.Dir(at), "/namespaces/")
	_, version, _ := strings.Cut(strings.TrimPrefix(group, "/"), "/")

	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(version)
	list.SetKind(listKinds[path.Base(at)] + "List")

	for _, name := range slices.Sorted(maps.Keys(a.Objects)) {
		o := unstructured.Unstructured{Object: a.Objects[name]}
		if path.Base(path.Dir(name)) == path.Base(at) && strings.HasPrefix(name, group) &&
			wanted.Matches(labels.Set(o.GetLabels())) {
			list.Items = append(list.Items, o)
		}
	}

	return list.UnstructuredContent()
}
