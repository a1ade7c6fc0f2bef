package machine

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/services"
)

const (
	// kubeletRound is how often a kubelet looks after its node; every leaseRounds it renews the lease.
	kubeletRound = time.Second
	leaseRounds  = 3
	// kubeletPatience is how many failures in a row make a kubelet look for another API server.
	kubeletPatience = 3
	leaseNamespace  = "kube-node-lease"
)

// realKubelet is the kubelet of a machine while it speaks to one API server.
type realKubelet struct {
	k *realKubernetes
	m *machine
	// client has the rights of the node; talos those with which Talos changes its node, the administrator's on control
	// planes.
	client, talos *rest.RESTClient
	name          string
}

// runKubelet implements kubernetes.
func (k *realKubernetes) runKubelet(ctx context.Context) {
	m := k.m

	k.mu.Lock()
	k.pods, k.booted = map[string]*realPod{}, ctx
	k.mu.Unlock()

	if !m.awaitNodeIP(ctx) {
		return
	}

	k.loadCNI()

	m.ms.mu.Lock()
	m.kubelet.running = true
	m.services.Set("kubelet", services.Running, "Health check successful")
	skip := m.config.Machine().Kubelet().SkipNodeRegistration()
	m.ms.mu.Unlock()

	m.track(func() { k.runDoor(ctx) })
	m.track(func() { k.restartKubelet(ctx) })

	if skip {
		return
	}

	for ctx.Err() == nil {
		kubelet, err := k.connect(ctx)
		if err != nil {
			m.say("[talos] kubelet: %s", err)
		} else if kubelet != nil {
			kubelet.run(ctx)
		}

		select {
		case <-ctx.Done():
		case <-time.After(kubeletRound):
		}
	}
}

// restartKubelet starts the kubelet's service again whenever its image or its arguments have changed.
func (k *realKubernetes) restartKubelet(ctx context.Context) {
	m := k.m
	settings := func() string {
		kubelet := m.config.Machine().Kubelet()

		return fmt.Sprint(kubelet.Image(), kubelet.ExtraArgs(), kubelet.ExtraConfig())
	}

	m.ms.mu.Lock()

	last := ""
	if m.config != nil {
		last = settings()
	}
	m.ms.mu.Unlock()

	for m.cluster.await(ctx, func() bool {
		return m.config != nil && settings() != last && m.services.Running("kubelet")
	}) {
		m.ms.mu.Lock()
		last = settings()

		m.services.Forget("kubelet")
		m.logf("[talos] service[kubelet](Removed): its settings have changed")
		m.changed.fire()
		m.ms.mu.Unlock()
		m.resources() // who watches the service sees it go

		if !m.sleep(ctx, time.Second) {
			return
		}

		m.ms.mu.Lock()
		m.services.Set("kubelet", services.Running, "Health check successful")
		m.ms.mu.Unlock()
	}
}

// connect waits for an API server that the machine reaches; nil when the context ended first.
func (k *realKubernetes) connect(ctx context.Context) (*realKubelet, error) {
	m := k.m

	var (
		kubelet *realKubelet
		err     error
	)

	if !m.cluster.await(ctx, func() bool {
		server := m.kubernetes()
		if server == nil || m.services.Stopped("kubelet") {
			return false
		}

		// A control plane signs the kubelet's certificate, as its controller manager does for real ones.
		kubelet = &realKubelet{k: k, m: m, name: m.hostname}
		kubelet.client, err = controlplane.AsKubelet(server.config, apiServerOf(server), m.hostname)
		kubelet.talos = kubelet.client

		if err == nil && m.isControlPlane() {
			kubelet.talos, err = controlplane.AsAdministrator(server.config, apiServerOf(server))
		}

		return true
	}) {
		return nil, nil
	}

	return kubelet, err
}

// run registers the node and looks after it until the kubelet is stopped or its API server is lost.
func (r *realKubelet) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	failures := 0

	if err := r.register(ctx); err != nil {
		return
	}

	pods := make(chan struct{})

	go func() {
		defer close(pods)

		r.runPods(ctx)
	}()

	defer func() { stop(); <-pods }()

	for round := 0; ctx.Err() == nil && failures < kubeletPatience && !r.stopped(); round++ {
		var err error
		if round%leaseRounds == 0 {
			err = r.renew(ctx)
		}

		if err == nil {
			err = r.lookAfterNode(ctx)
		}

		if failures++; err == nil {
			failures = 0
		}

		select {
		case <-ctx.Done():
		case <-time.After(kubeletRound):
		}
	}
}

// stopped says that somebody has stopped the kubelet's service.
func (r *realKubelet) stopped() bool {
	r.m.ms.mu.Lock()
	defer r.m.ms.mu.Unlock()

	return r.m.services.Stopped("kubelet")
}

// register creates the Node, or takes over the one that is there.
func (r *realKubelet) register(ctx context.Context) error {
	m := r.m

	m.ms.mu.Lock()
	taints, err := m.registrationTaints()
	labels := m.kubeletLabels()
	m.ms.mu.Unlock()

	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.name, Labels: labels}, Spec: corev1.NodeSpec{Taints: taints},
	}

	if err == nil {
		err = r.client.Post().Resource("nodes").Body(node).Do(ctx).Error()
	}

	if err != nil && !apierrors.IsAlreadyExists(err) {
		m.ms.mu.Lock()
		defer m.ms.mu.Unlock()

		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			err = fmt.Errorf("kubelet: Unable to register node with API server: %w", err)
		}

		m.refuseKubelet(err.Error())

		return err
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if err == nil {
		m.logf("[talos] kubelet: registered node %q", r.name)
	}

	m.kubelet.posting, m.disk.KubeletRegistered = true, true
	m.save()
	m.cluster.changed.fire()
	m.changed.fire()

	return nil
}

// renew says that the kubelet is alive.
func (r *realKubelet) renew(ctx context.Context) error {
	now, seconds := metav1.NowMicro(), int32(40)
	path := "/apis/coordination.k8s.io/v1/namespaces/" + leaseNamespace + "/leases"

	var lease coordinationv1.Lease

	err := r.client.Get().AbsPath(path, r.name).Do(ctx).Into(&lease)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &r.name, &seconds, &now

	switch {
	case apierrors.IsNotFound(err):
		lease.ObjectMeta = metav1.ObjectMeta{Name: r.name, Namespace: leaseNamespace}

		return r.client.Post().AbsPath(path).Body(&lease).Do(ctx).Error()
	case err != nil:
		return err
	default:
		return r.client.Put().AbsPath(path, r.name).Body(&lease).Do(ctx).Error()
	}
}

// lookAfterNode posts the node's status where it has changed, lets Talos apply its labels, annotations and taints, and
// keeps the static pods' mirrors.
func (r *realKubelet) lookAfterNode(ctx context.Context) error {
	var node corev1.Node

	err := r.client.Get().Resource("nodes").Name(r.name).VersionedParams(&metav1.GetOptions{ResourceVersion: "0"},
		metav1.ParameterCodec).Do(ctx).Into(&node)
	if apierrors.IsNotFound(err) {
		return nil // somebody has deleted it; it comes back when the kubelet restarts
	}

	if err != nil {
		return err
	}

	status := node.Status.DeepCopy()
	r.describe(&node)

	if !sameStatus(status, &node.Status) {
		put := r.client.Put().Resource("nodes").Name(r.name).SubResource("status").Body(&node)
		if err := put.Do(ctx).Into(&node); err != nil {
			return ignoreConflict(err)
		}
	}

	if err := r.applyNode(ctx, &node); err != nil {
		return err
	}

	return r.mirror(ctx, &node)
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil // the next round sees what was changed
	}

	return err
}
