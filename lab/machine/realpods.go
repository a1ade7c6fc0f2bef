package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"proxmox-talos/lab/machine/kube"
)

// podRound is how often a kubelet looks after pods that nobody has changed, since their machine may have.
const podRound = 3 * time.Second

// realPod is a pod that runs, or tries to, on a node of a real cluster.
type realPod struct {
	pod    *corev1.Pod
	state  podState
	warned string // the last warning that was told
}

// fetched are the objects that a pod refers to.
type fetched map[string]*kubeObject

func (f fetched) object(plural, namespace, name string) *kubeObject {
	return f[objectKey(plural, namespace, name)]
}

// runPods follows the pods of the node.
func (r *realKubelet) runPods(ctx context.Context) {
	r.k.mu.Lock()
	r.k.pods = map[string]*realPod{}
	r.k.mu.Unlock()

	sync := func(o any) {
		if p, ok := o.(*corev1.Pod); ok {
			r.syncPod(ctx, p.DeepCopy())
		}
	}

	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(r.client, "pods", metav1.NamespaceAll,
			fields.OneTermEqualSelector("spec.nodeName", r.name)),
		ObjectType: &corev1.Pod{}, ResyncPeriod: podRound,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: sync, UpdateFunc: func(_, o any) { sync(o) },
			DeleteFunc: r.forgetPod,
		},
	})
	informer.RunWithContext(ctx)
}

func (r *realKubelet) forgetPod(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}

	if p, ok := o.(*corev1.Pod); ok {
		r.k.mu.Lock()
		delete(r.k.pods, string(p.UID))
		r.k.mu.Unlock()
	}
}

// syncPod brings a pod as far as it comes on this machine, and says so.
func (r *realKubelet) syncPod(ctx context.Context, p *corev1.Pod) {
	if r.stopped() {
		return
	}

	if p.DeletionTimestamp != nil {
		r.forgetPod(p)
		_ = r.deletePod(ctx, p, &metav1.Preconditions{UID: &p.UID}) // the next look repeats it

		return
	}

	state, known := r.podState(ctx, p)
	if !known {
		return
	}

	r.warn(ctx, p, state)

	status := r.podStatus(p, state)
	if equality.Semantic.DeepEqual(status, p.Status) {
		return
	}

	p.Status = status
	put := r.client.Put().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource("status").Body(p)
	_ = put.Do(ctx).Error() // the next look repeats it
}

// deletePod removes a pod that has ended; one that is gone already is as good.
func (r *realKubelet) deletePod(ctx context.Context, p *corev1.Pod, only *metav1.Preconditions) error {
	now := int64(0)
	options, _ := json.Marshal(metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: only}) // always encodes

	err := r.client.Delete().Resource("pods").Namespace(p.Namespace).Name(p.Name).Body(options).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

// podState is what has become of a pod; unknown where the API server does not tell what it refers to.
func (r *realKubelet) podState(ctx context.Context, p *corev1.Pod) (podState, bool) {
	if p.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return podState{running: r.k.runs(p.Labels["component"])}, true
	}

	objects, err := r.fetch(ctx, p)
	if err != nil {
		return podState{}, false
	}

	m := r.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil {
		return podState{}, false
	}

	cni := m.config.Cluster().Network().CNI().Name() != constants.NoneCNI

	return podRun{namespace: p.Namespace, name: p.Name, uid: string(p.UID), spec: p.Spec, objects: objects}.on(m,
		cni), true
}

// fetch reads what a pod refers to, with the rights of the node's kubelet.
func (r *realKubelet) fetch(ctx context.Context, p *corev1.Pod) (fetched, error) {
	objects := fetched{}

	get := func(root, plural, namespace, name string) error {
		path := []string{root}
		if namespace != "" {
			path = append(path, "namespaces", namespace)
		}

		text, err := r.client.Get().AbsPath(append(path, plural, name)...).Do(ctx).Raw()
		if apierrors.IsNotFound(err) {
			return nil
		}

		o := &kubeObject{Plural: plural, Namespace: namespace, Name: name}
		if err == nil {
			err = json.Unmarshal(text, &o.Content)
		}

		objects[objectKey(plural, namespace, name)] = o

		return err
	}

	if class := p.Spec.RuntimeClassName; class != nil {
		if err := get("/apis/node.k8s.io/v1", "runtimeclasses", "", *class); err != nil {
			return nil, err
		}
	}

	for _, v := range p.Spec.Volumes {
		var err error

		switch {
		case v.ConfigMap != nil:
			err = get("/api/v1", "configmaps", p.Namespace, v.ConfigMap.Name)
		case v.Secret != nil:
			err = get("/api/v1", "secrets", p.Namespace, v.Secret.SecretName)
		}

		if err != nil {
			return nil, err
		}
	}

	return objects, nil
}

// offers are the resources that device plugins have registered with the node's kubelet.
func (k *realKubernetes) offers() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()

	offers := map[string]int{}

	for _, p := range k.pods {
		for name, count := range p.state.offers {
			offers[name] = count
		}
	}

	return offers
}

// nodePods implements kubernetes.
func (k *realKubernetes) nodePods(*etcd, *machine) []kube.Object {
	k.mu.Lock()
	defer k.mu.Unlock()

	var pods []kube.Object

	for _, one := range k.pods {
		p := one.pod
		if p.Annotations[corev1.MirrorPodAnnotationKey] != "" || !one.state.running {
			continue
		}

		for _, c := range p.Spec.Containers {
			pod := newPod(p.Name, p.Spec.NodeName, p.Status.PodIP, c.Name, c.Image, p.CreationTimestamp.Time, true)
			pod.Metadata.Namespace = p.Namespace
			pods = append(pods, pod)
		}
	}

	return pods
}

// warn remembers a pod's state, and tells its warning once.
func (r *realKubelet) warn(ctx context.Context, p *corev1.Pod, state podState) {
	r.k.mu.Lock()

	known := r.k.pods[string(p.UID)]
	if known == nil {
		known = &realPod{}
		r.k.pods[string(p.UID)] = known
	}

	known.pod, known.state = p, state
	told := known.warned == state.warning+state.details
	known.warned = state.warning + state.details
	r.k.mu.Unlock()

	if told || state.warning == "" {
		return
	}

	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", p.Name, now.UnixNano()), Namespace: p.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name,
			UID: p.UID,
		},
		Type: corev1.EventTypeWarning, Reason: state.warning, Message: state.details, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "kubelet", Host: r.name},
	}
	// An event that is lost is told nowhere, as on a real node.
	_ = r.client.Post().Resource("events").Namespace(p.Namespace).Body(event).Do(ctx).Error()
}
