// Package kubelet is a node's kubelet that speaks to a real API server: it registers the node and looks after its
// status, runs pods, mirrors static ones, evicts them when Talos drains the node, and serves its own API.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/nodes"
	"talos-proxmox/lab/machine/pods"
)

const (
	// syncInterval is how often a kubelet looks after its node, leaseRenewal how often it renews its lease, which lasts for
	// leaseSeconds.
	syncInterval       = time.Second
	leaseRenewInterval = 3 * time.Second
	leaseSeconds       = 40
	// maxFailures is how many failures in a row make a kubelet look for another API server.
	maxFailures = 3
)

// Machine is what a kubelet needs of the machine that it runs on.
type Machine interface {
	// Logf writes a line to the console.
	Logf(format string, args ...any)
	// Go runs something beside the rest until the machine's boot ends.
	Go(run func())
	// KubeletStopped says that the kubelet's service was stopped, or is started again with other authorities.
	KubeletStopped() bool
	// Host describes the machine to what runs on it; an error when it goes down.
	Host() (controlplane.Host, error)
	// KubeletFacts are what the kubelet finds on the machine at this moment.
	KubeletFacts() Facts
	// StaticPods are those that were started.
	StaticPods() []StaticPod
	// Registration is what the node registers with.
	Registration() (*corev1.Node, error)
	// NodeRegistered notes that the API server has the node, NodeRefused why it does not.
	NodeRegistered(created bool)
	RegistrationFailed(text string)
	// NodeApplied notes why the API server does not take what Talos wants of the node; empty where it does.
	NodeApplied(refusal string)
}

// Facts are what a kubelet finds on its machine.
type Facts struct {
	// Config is nil once the machine goes down, and then nothing of the others counts.
	Config config.Provider
	// Node is the machine as its node, Desired what Talos wants of that.
	Node    nodes.Machine
	Desired nodes.Desired
	// Address is the node's, Network its part of the pods' network; invalid before it has one.
	Address netip.Addr
	Network netip.Prefix
	GPUs    pods.GPUs
	// KubePrism is its port, 0 where it leads nowhere.
	KubePrism int
	// API is where pods reach the API server, as they reach its service on a node.
	API netip.AddrPort
	// Binaries is the folder of the programs that the lab has of images, Dir the machine's own folder; empty once it goes
	// down.
	Binaries, Dir string
}

// StaticPod is a static pod of a control plane, as it was started.
type StaticPod struct {
	Name, Image string
	// Version is that of its settings, as Talos counts it, Secrets that of its certificates.
	Version, Secrets string
	// Ready says that it does its work.
	Ready bool
}

// Kubelet runs pods on a machine.
type Kubelet struct {
	m     Machine
	clock datacentre.Clock

	mu sync.Mutex
	// pods are what it runs, by UID; booted ends with the machine's boot, and they with it.
	pods    map[string]*localPod
	bootCtx context.Context //nolint:containedctx // containers live longer than any call
	// cniInstalled says that the pods have a network.
	cniInstalled bool
	// session to an API server at this moment.
	session *session
	// syncMu is held while a pod is looked after.
	syncMu sync.Mutex
}

// New makes the kubelet of a machine.
func New(m Machine, clock datacentre.Clock) *Kubelet {
	return &Kubelet{m: m, clock: clock}
}

// Reset starts over: nothing runs yet, and the context ends with the boot.
func (k *Kubelet) Reset(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.pods, k.bootCtx = map[string]*localPod{}, ctx
}

// Server is how a kubelet speaks to one API server.
type Server struct {
	// Node is the node's name.
	Node string
	// Client has the rights of the node; Talos those with which Talos changes its node, the administrator's on control
	// planes.
	Client, Talos kubernetes.Interface
}

// session is the kubelet while it speaks to one API server.
type session struct {
	Server

	k      *Kubelet
	events record.EventRecorder
}

// errNoServer is what a kubelet says that does not reach its API server.
var errNoServer = errors.New("the kubelet reaches no API server")

// activeSession is the link to an API server, which the kubelet asks about its callers.
func (k *Kubelet) activeSession() (*session, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.session == nil {
		return nil, errNoServer
	}

	return k.session, nil
}

// Run registers the node and looks after it until the kubelet is stopped or its API server is lost.
func (k *Kubelet) Run(ctx context.Context, s Server) {
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()

	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.Client.CoreV1().Events("")})

	source := corev1.EventSource{Component: "kubelet", Host: s.Node}
	(&session{s, k, events.NewRecorder(scheme.Scheme, source)}).run(ctx)
}

func (r *session) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	failures := 0

	if err := r.register(ctx); err != nil {
		return
	}

	leases := lease.NewController(clock.RealClock{}, r.Client, r.Node, leaseSeconds, nil, leaseRenewInterval,
		r.Node, corev1.NamespaceNodeLease, nil)

	var running sync.WaitGroup

	running.Go(func() { leases.Run(ctx) })
	running.Go(func() { r.runPods(ctx) })

	defer func() { stop(); running.Wait() }()

	for ctx.Err() == nil && failures < maxFailures && !r.k.m.KubeletStopped() {
		if failures++; r.syncNode(ctx) == nil {
			failures = 0
		}

		controlplane.Sleep(ctx, syncInterval)
	}
}

// register creates the Node, or takes over the one that is there.
func (r *session) register(ctx context.Context) error {
	node, err := r.k.m.Registration()
	if err == nil {
		_, err = r.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	}

	if err != nil && !apierrors.IsAlreadyExists(err) {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			err = fmt.Errorf("kubelet: Unable to register node with API server: %w", err)
		}

		r.k.m.RegistrationFailed(err.Error())

		return err
	}

	r.k.m.NodeRegistered(err == nil)

	return nil
}

// syncNode posts the node's status where it has changed, lets Talos apply its labels, annotations and taints, and
// keeps the static pods' mirrors.
func (r *session) syncNode(ctx context.Context) error {
	node, err := r.Client.CoreV1().Nodes().Get(ctx, r.Node, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil // it was deleted; it comes back when the kubelet restarts
	}

	if err != nil {
		return err
	}

	facts := r.k.m.KubeletFacts()
	if facts.Config == nil {
		return nil
	}

	status := node.Status.DeepCopy()
	r.setNodeStatus(&node.Status, facts.Node)

	if !equalStatus(status, &node.Status) {
		if node, err = r.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return ignoreConflict(err)
		}
	}

	if err := r.applyNode(ctx, node, facts.Desired); err != nil {
		return err
	}

	return r.syncMirrorPods(ctx, node)
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil // the next round sees what was changed
	}

	return err
}
