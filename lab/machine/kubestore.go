package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/lab/machine/pods"
)

// kubeObject is an object that a pod refers to, or that makes pods.
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

func recode(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}

	return json.Unmarshal(text, to)
}

// modelKinds are what the model keeps of manifests: what makes nodes offer GPUs.
var modelKinds = map[string]string{
	"v1/ConfigMap": "configmaps", "node.k8s.io/v1/RuntimeClass": "runtimeclasses", "apps/v1/DaemonSet": "daemonsets",
}

// keep stores an object of a manifest where nothing has its name, and returns how Talos calls it; empty where it is
// there, or is nothing that the model keeps. The caller holds the lock.
func (e *etcd) keep(content map[string]any) string {
	var meta metav1.PartialObjectMetadata
	if err := recode(content, &meta); err != nil {
		return ""
	}

	plural := modelKinds[meta.APIVersion+"/"+meta.Kind]
	key := objectKey(plural, meta.Namespace, meta.Name)

	if plural == "" || e.objects[key] != nil {
		return ""
	}

	e.objects[key] = &kubeObject{
		Plural: plural, Namespace: meta.Namespace, Name: meta.Name, UID: uuid.NewString(),
		Created: time.Now().UTC().Truncate(time.Second), Content: content,
	}
	e.committed(false)

	kind := meta.GroupVersionKind()

	return fmt.Sprintf("%s/%s/%s/%s", kind.Group, kind.Version, kind.Kind, meta.Name)
}

// Object implements pods.Objects.
func (e *etcd) Object(plural, namespace, name string) map[string]any {
	if o := e.objects[objectKey(plural, namespace, name)]; o != nil {
		return o.Content
	}

	return nil
}

// storedAs are the objects of a resource that can be read, in the order of their names; the caller holds the lock.
func storedAs[T any](e *etcd, plural string) []T {
	list := []T{}

	for _, o := range e.stored(plural) {
		var one T
		if recode(o.Content, &one) == nil {
			list = append(list, one)
		}
	}

	return list
}

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

// daemonPod is the pod of a DaemonSet on a node.
type daemonPod struct {
	pods.Pod

	node  string
	state pods.State
}

// daemonPods are the pods of the DaemonSets whose nodeSelector takes the node; the caller holds the lock.
func (e *etcd) daemonPods(n *kubeNode) []daemonPod {
	var list []daemonPod

	for _, o := range e.stored("daemonsets") {
		var set appsv1.DaemonSet
		if recode(o.Content, &set) != nil {
			continue
		}

		spec := set.Spec.Template.Spec
		if !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(n.Labels)) {
			continue
		}

		uid := uuid.NewSHA1(uuid.NameSpaceOID, []byte(o.UID+n.UID)).String()
		p := daemonPod{Pod: pods.Pod{
			Namespace: o.Namespace, Name: o.Name + "-" + uid[:5], UID: uid, Spec: spec, Objects: e,
		}, node: n.Name}

		if m := e.ms.running[n.VMID]; m != nil && e.posts(n) {
			p.state = p.On(m.gpus(), n.CNI)
		}

		list = append(list, p)
	}

	return list
}

// object is the pod as the API shows it.
func (p daemonPod) object() corev1.Pod {
	p.Spec.NodeName = p.node
	o := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: types.UID(p.UID)},
		Spec:       p.Spec, Status: corev1.PodStatus{Phase: corev1.PodPending},
	}

	if p.state.Running {
		o.Status.Phase = corev1.PodRunning
	}

	for _, c := range p.Spec.Containers {
		s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: p.state.Running}
		if !s.Ready {
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: p.state.Reason, Message: p.state.Message}
		}

		o.Status.ContainerStatuses = append(o.Status.ContainerStatuses, s)
	}

	return o
}
