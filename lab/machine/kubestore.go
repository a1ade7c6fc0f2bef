package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proxmox-talos/lab/machine/kube"
)

// kubeObject is an object of the Kubernetes API as etcd keeps it.
type kubeObject struct {
	Plural    string    `json:"plural"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	Created   time.Time `json:"created"`
	// Content is the object as it was stated.
	Content map[string]any `json:"content"`
}

func objectKey(plural, namespace, name string) string { return plural + "/" + namespace + "/" + name }

// builtinNamespaces are there in every cluster.
var builtinNamespaces = []string{"default", "kube-node-lease", "kube-public", kubeSystem}

// put stores an object as the API server does: with its kind checked, its namespace there, and nothing else of that name. The caller holds the lock.
func (e *etcd) put(k *kube.Kind, namespace string, content map[string]any, replace bool) (*kubeObject, *kube.StatusError) {
	var meta metav1.PartialObjectMetadata

	if err := recode(content, &meta); err != nil {
		return nil, kube.BadRequest("%s in version \"v1\" cannot be handled as a %s: %s", k.Kind, k.Kind, err)
	}

	if err := checkObject(k, content, meta.Name); err != nil {
		return nil, err
	}

	o := &kubeObject{Plural: k.Plural, Name: meta.Name, UID: uuid.NewString(), Created: time.Now().UTC().Truncate(time.Second), Content: content}
	if k.Namespaced {
		o.Namespace = cmp.Or(namespace, meta.Namespace, metav1.NamespaceDefault)
	}

	have := e.objects[objectKey(k.Plural, o.Namespace, o.Name)]

	switch {
	case k.Namespaced && !e.hasNamespace(o.Namespace):
		return nil, kube.NotFound("namespaces", o.Namespace)
	case have != nil && !replace, k.Plural == "namespaces" && slices.Contains(builtinNamespaces, o.Name) && !replace:
		return nil, kube.AlreadyExists(k.Plural, o.Name)
	case have == nil && replace:
		return nil, kube.NotFound(k.Plural, o.Name)
	case have != nil:
		o.UID, o.Created = have.UID, have.Created
	}

	e.objects[objectKey(k.Plural, o.Namespace, o.Name)] = o
	e.committed(false)

	return o, nil
}

func recode(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}

	return json.Unmarshal(text, to)
}

// checkObject decodes what the lab acts upon with Kubernetes' own types.
func checkObject(k *kube.Kind, content map[string]any, name string) *kube.StatusError {
	if name == "" {
		return kube.Invalid(k, "", "metadata.name: Required value: name or generateName is required")
	}

	typed := map[string]any{
		"daemonsets": &appsv1.DaemonSet{}, "deployments": &appsv1.Deployment{}, "configmaps": &corev1.ConfigMap{}, "runtimeclasses": &nodev1.RuntimeClass{},
		"serviceaccounts": &corev1.ServiceAccount{}, "namespaces": &corev1.Namespace{}, "secrets": &corev1.Secret{},
	}[k.Plural]
	if typed == nil {
		return nil
	}

	if err := recode(content, typed); err != nil {
		return kube.BadRequest("%s in version \"v1\" cannot be handled as a %s: %s", k.Kind, k.Kind, err)
	}

	switch o := typed.(type) {
	case *nodev1.RuntimeClass:
		if o.Handler == "" {
			return kube.Invalid(k, name, "handler: Required value")
		}
	case *appsv1.DaemonSet:
		selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
		if err != nil || selector.Empty() || !selector.Matches(labelSet(o.Spec.Template.Labels)) {
			return kube.Invalid(k, name, "spec.template.metadata.labels: Invalid value: `selector` does not match template `labels`")
		}

		if len(o.Spec.Template.Spec.Containers) == 0 {
			return kube.Invalid(k, name, "spec.template.spec.containers: Required value")
		}
	}

	return nil
}

func (e *etcd) hasNamespace(name string) bool {
	return slices.Contains(builtinNamespaces, name) || e.objects[objectKey("namespaces", "", name)] != nil
}

// remove deletes an object, and with a namespace all that is in it; the caller holds the lock.
func (e *etcd) remove(k *kube.Kind, namespace, name string) bool {
	key := objectKey(k.Plural, namespace, name)
	if e.objects[key] == nil {
		return false
	}

	delete(e.objects, key)

	if k.Plural == "namespaces" {
		maps.DeleteFunc(e.objects, func(_ string, o *kubeObject) bool { return o.Namespace == name })
	}

	e.committed(false)

	return true
}

// stored are the objects of a resource in order of namespace and name; the caller holds the lock.
func (e *etcd) stored(plural string) []*kubeObject {
	var list []*kubeObject

	for _, o := range e.objects {
		if o.Plural == plural {
			list = append(list, o)
		}
	}

	slices.SortFunc(list, func(a, b *kubeObject) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return list
}

// object is the stored object as the API shows it.
func (o *kubeObject) object(revision uint64) kube.Object {
	shown := kube.Object{Fields: map[string]any{}}
	_ = recode(o.Content, &shown) // it was checked when it was stored

	for key, value := range o.Content {
		switch key {
		case "apiVersion", "kind", "metadata", "spec", "status":
		default:
			shown.Fields[key] = value
		}
	}

	shown.Metadata.Namespace, shown.Metadata.UID, shown.Metadata.CreationTimestamp = o.Namespace, o.UID, o.Created
	shown.Metadata.ResourceVersion = fmt.Sprint(revision)

	if o.Plural == "namespaces" {
		labels := maps.Clone(shown.Metadata.Labels)
		if labels == nil {
			labels = map[string]string{}
		}

		labels["kubernetes.io/metadata.name"] = o.Name
		shown.Metadata.Labels = labels
		shown.Spec, shown.Status = map[string]any{"finalizers": []string{"kubernetes"}}, map[string]any{"phase": "Active"}
	}

	return shown
}
