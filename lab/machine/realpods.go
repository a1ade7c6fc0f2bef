package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// podStatus is the status of a pod in its state.
func (r *realKubelet) podStatus(p *corev1.Pod, state podState) corev1.PodStatus {
	s := *p.Status.DeepCopy()

	if s.StartTime == nil {
		now := metav1.Now().Rfc3339Copy()
		s.StartTime = &now
	}

	address := r.address()
	s.HostIP, s.HostIPs, s.Phase = address, []corev1.HostIP{{IP: address}}, corev1.PodPending

	if state.running || state.crash != nil {
		s.Phase = corev1.PodRunning

		if s.PodIP == "" {
			s.PodIP = r.podAddress(p, address)
			s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
		}
	}

	ready := corev1.ConditionFalse
	if state.running {
		ready = corev1.ConditionTrue
	}

	for _, c := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady,
		corev1.ContainersReady,
	} {
		setPodCondition(&s, c, ready)
	}

	s.ContainerStatuses = nil
	for _, c := range p.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, r.containerStatus(c, state, *s.StartTime))
	}

	return s
}

func setPodCondition(s *corev1.PodStatus, kind corev1.PodConditionType, status corev1.ConditionStatus) {
	i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })

	switch {
	case i < 0:
		s.Conditions = append(s.Conditions,
			corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.Now().Rfc3339Copy()})
	case s.Conditions[i].Status != status:
		s.Conditions[i].Status, s.Conditions[i].LastTransitionTime = status, metav1.Now().Rfc3339Copy()
		s.Conditions[i].Reason, s.Conditions[i].Message = "", ""
	}
}

func (r *realKubelet) containerStatus(c corev1.Container, state podState, started metav1.Time) corev1.ContainerStatus {
	running := state.running
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: running, Started: &running}

	switch {
	case running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: started}
	case state.reason != "":
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: state.reason, Message: state.message}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}

	if end := state.crash; end != nil {
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: end.reason, Message: end.message,
			ExitCode: int32(end.code), StartedAt: started,
		} //nolint:gosec // an exit code
		elapsed := time.Duration(float64(time.Since(started.Time)) * r.m.ms.world.Clock().Speed())
		s.RestartCount = int32(restarts(elapsed)) //nolint:gosec // a few
	}

	return s
}

// address is the node's.
func (r *realKubelet) address() string {
	r.m.ms.mu.Lock()
	defer r.m.ms.mu.Unlock()

	return r.m.net.node.String()
}

// podAddress is the next free address of the node's part of the pod network, or the node's own for a pod in its host's
// network.
func (r *realKubelet) podAddress(p *corev1.Pod, host string) string {
	r.m.ms.mu.Lock()
	defer r.m.ms.mu.Unlock()

	if p.Spec.HostNetwork {
		return host
	}

	network := netip.MustParsePrefix(constants.DefaultIPv4PodNet)

	if e := r.m.etcdOfNode(); e != nil {
		if given, err := netip.ParsePrefix(e.nodes[r.name].podNetwork); err == nil {
			network = given
		}
	}

	r.k.mu.Lock()
	defer r.k.mu.Unlock()

	used := map[string]bool{}
	for _, other := range r.k.pods {
		used[other.pod.Status.PodIP] = true
	}

	a := network.Addr().Next().Next()
	for used[a.String()] {
		a = a.Next()
	}

	return a.String()
}

// mirror keeps a mirror pod of each static pod of a control plane.
func (r *realKubelet) mirror(ctx context.Context, node *corev1.Node) error {
	m := r.m

	m.ms.mu.Lock()

	var wanted []*corev1.Pod
	if m.config != nil && m.isControlPlane() {
		for _, name := range staticPodNames {
			wanted = append(wanted, mirrorPod(name, m.staticPodImage(name), node))
		}
	}

	m.ms.mu.Unlock()

	for _, p := range wanted {
		if have := r.mirrorOf(p.Name); have != nil {
			if have.Annotations[corev1.MirrorPodAnnotationKey] == p.Annotations[corev1.MirrorPodAnnotationKey] {
				continue
			}

			if err := r.deletePod(ctx, p, nil); err != nil {
				return err
			}
		}

		err := r.client.Post().Resource("pods").Namespace(p.Namespace).Body(p).Do(ctx).Error()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}

	return nil
}

// mirrorOf is the mirror pod of a name that the node has.
func (r *realKubelet) mirrorOf(name string) *corev1.Pod {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()

	for _, p := range r.k.pods {
		if p.pod.Name == name && p.pod.Namespace == kubeSystem && p.pod.DeletionTimestamp == nil {
			return p.pod
		}
	}

	return nil
}

// mirrorPod is what the API shows of a static pod. Its hash follows from what the pod runs.
func mirrorPod(component, image string, node *corev1.Node) *corev1.Pod {
	hash := strings.NewReplacer("/", "-", ":", "-", "@", "-").Replace(image)
	controller, grace := true, int64(30)

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: component + "-" + node.Name, Namespace: kubeSystem,
			Labels: map[string]string{"k8s-app": component, "tier": "control-plane", "component": component},
			Annotations: map[string]string{
				"kubernetes.io/config.source": "file", corev1.MirrorPodAnnotationKey: hash,
				"kubernetes.io/config.hash": hash,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
				Controller: &controller,
			}},
		},
		Spec: corev1.PodSpec{
			NodeName: node.Name, HostNetwork: true, PriorityClassName: "system-cluster-critical",
			TerminationGracePeriodSeconds: &grace,
			Tolerations: []corev1.Toleration{{
				Operator: corev1.TolerationOpExists,
				Effect:   corev1.TaintEffectNoExecute,
			}},
			Containers: []corev1.Container{{Name: component, Image: image}},
		},
	}
}
