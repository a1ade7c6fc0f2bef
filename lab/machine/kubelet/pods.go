package kubelet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"talos-proxmox/lab/machine/pods"
)

// resyncPeriod is how often a kubelet syncs unchanged pods, since their machine may have changed.
const resyncPeriod = 3 * time.Second

// localPod is a pod on a node of a real cluster.
type localPod struct {
	pod         *corev1.Pod
	state       pods.State
	lastWarning string // the last reported warning

	containers map[string]*localContainer
	gpus       []int // indices of the node's GPUs that are allocated to it
	// ports maps container ports to ports of the node at which the lab's programs listen.
	ports map[int32]uint16
	// refusal is why the kubelet rejects the pod.
	refusal string
	// admitted: admission was decided; terminating: its containers are being terminated; ended: they have ended.
	admitted, terminating, ended bool
	// grace is the grace period in seconds; kill cancels killCtx, which kills its containers.
	grace   int64
	killCtx context.Context //nolint:containedctx // containers live longer than any call
	kill    context.CancelFunc
}

// finished reports whether a pod has succeeded or failed.
func (p *localPod) finished() bool {
	return p.pod.Status.Phase == corev1.PodSucceeded || p.pod.Status.Phase == corev1.PodFailed
}

// runPods syncs the pods of the node.
func (r *session) runPods(ctx context.Context) {
	r.k.mu.Lock()
	r.k.session = r
	r.k.mu.Unlock()

	defer func() {
		r.k.mu.Lock()
		r.k.session = nil
		r.k.mu.Unlock()
	}()

	handle := func(o any) {
		if p, ok := o.(*corev1.Pod); ok {
			r.k.syncMu.Lock()
			defer r.k.syncMu.Unlock()

			r.syncPod(ctx, p.DeepCopy())
		}
	}

	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(r.Client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
			fields.OneTermEqualSelector("spec.nodeName", r.Node)),
		ObjectType: &corev1.Pod{}, ResyncPeriod: resyncPeriod,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: handle, UpdateFunc: func(_, o any) { handle(o) },
			DeleteFunc: func(o any) {
				if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}

				if p, ok := o.(*corev1.Pod); ok {
					r.k.removePods(string(p.UID))
				}
			},
		},
	})

	var pruned sync.WaitGroup

	pruned.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			r.k.prunePods(store.List())
		}
	})
	informer.RunWithContext(ctx)
	pruned.Wait()
}

// removePods stops and removes pods that the API server no longer has.
func (k *Kubelet) removePods(uids ...string) {
	k.syncMu.Lock()
	defer k.syncMu.Unlock()

	for _, uid := range uids {
		k.removePod(uid)
	}
}

// removePod stops and removes a pod; the caller holds syncMu, so that nothing else handles the pod meanwhile.
func (k *Kubelet) removePod(uid string) {
	defer k.removePodDirs(func(other string) bool { return other == uid })

	k.mu.Lock()
	defer k.mu.Unlock()

	if local := k.pods[uid]; local != nil {
		for _, c := range local.containers {
			if c.running {
				c.stop()
			}
		}
	}

	delete(k.pods, uid)
}

// prunePods removes pods that were deleted while the kubelet did not reach the API server.
func (k *Kubelet) prunePods(list []any) {
	existing := map[string]bool{}

	for _, o := range list {
		if p, ok := o.(*corev1.Pod); ok {
			existing[string(p.UID)] = true
		}
	}

	k.mu.Lock()
	deleted := slices.DeleteFunc(slices.Collect(maps.Keys(k.pods)), func(uid string) bool { return existing[uid] })
	k.mu.Unlock()

	k.removePods(deleted...)
	k.removePodDirs(func(uid string) bool { return !existing[uid] })
}

// syncPod runs a pod as far as this machine allows, and posts its status; the caller holds syncMu.
func (r *session) syncPod(ctx context.Context, p *corev1.Pod) {
	if r.k.m.KubeletStopped() {
		return
	}

	local := r.k.trackPod(p)

	if p.DeletionTimestamp != nil {
		r.endPod(ctx, p, local)

		return
	}

	if local.finished() {
		return
	}

	state, ok := r.podState(ctx, p)
	if !ok {
		return
	}

	r.recordState(local, state)
	r.runContainers(p, local)
	r.postStatus(ctx, p, r.podStatus(local, state))
}

// trackPod returns the node's state of a pod.
func (k *Kubelet) trackPod(p *corev1.Pod) *localPod {
	k.mu.Lock()
	defer k.mu.Unlock()

	local := k.pods[string(p.UID)]
	if local == nil {
		local = &localPod{}
		k.pods[string(p.UID)] = local
	}

	local.pod = p

	return local
}

// runContainers starts the containers of a pod that its node admits.
func (r *session) runContainers(p *corev1.Pod, local *localPod) {
	if !local.state.Running || isStatic(p) {
		return
	}

	if !local.admitted {
		local.admitted, local.refusal = true, r.admit(local)
	}

	if local.refusal != "" {
		return
	}

	node := r.newNodeEnv(local)

	r.k.mu.Lock()
	started := r.startContainers(local, node)
	r.k.mu.Unlock()
	r.k.installCNI(local)

	for _, name := range started {
		r.events.Event(p, corev1.EventTypeNormal, "Started", "Started container "+name)
	}
}

// endPod terminates the containers of a deleted pod, then deletes the pod.
func (r *session) endPod(ctx context.Context, p *corev1.Pod, local *localPod) {
	r.k.mu.Lock()
	wasTerminating, ended := local.terminating, local.ended || len(local.containers) == 0
	local.terminating = true
	r.k.mu.Unlock()

	if !ended {
		r.scheduleKill(p, local)
	}

	if !wasTerminating && !ended {
		for _, c := range p.Spec.Containers {
			r.events.Event(p, corev1.EventTypeNormal, "Killing", "Stopping container "+c.Name)
		}

		r.terminatePod(local)
	}

	if !ended {
		return
	}

	if len(local.containers) > 0 {
		r.postStatus(ctx, p, r.podStatus(local, local.state))
	}

	if r.deletePod(ctx, p, &metav1.Preconditions{UID: &p.UID}) == nil { // the next sync retries a failure
		r.k.removePod(string(p.UID))
	}
}

// postStatus posts a pod's status if it changed.
func (r *session) postStatus(ctx context.Context, p *corev1.Pod, status corev1.PodStatus) {
	if equality.Semantic.DeepEqual(status, p.Status) {
		return
	}

	r.k.mu.Lock()
	p.Status = status
	r.k.mu.Unlock()

	// The encoder modifies the object. The next sync retries a failure.
	_, _ = r.Client.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, p.DeepCopy(), metav1.UpdateOptions{})
}

// deletePod deletes a terminated pod, and succeeds if it no longer exists.
func (r *session) deletePod(ctx context.Context, p *corev1.Pod, only *metav1.Preconditions) error {
	now := int64(0)

	err := r.Client.CoreV1().Pods(p.Namespace).Delete(
		ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: only},
	)
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

// recordState records a pod's state, and reports its warning once.
func (r *session) recordState(local *localPod, state pods.State) {
	r.k.mu.Lock()
	local.state = state
	reported := local.lastWarning == state.Warning+state.Details
	local.lastWarning = state.Warning + state.Details
	r.k.mu.Unlock()

	if !reported && state.Warning != "" {
		r.events.Event(local.pod, corev1.EventTypeWarning, state.Warning, state.Details)
	}
}
