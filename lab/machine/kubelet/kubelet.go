// Package kubelet is a node's kubelet for a real API server: it registers the node and posts its status, runs pods,
// mirrors static pods, evicts pods when Talos drains the node, and serves its own API.
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
	// syncInterval is the time between two syncs of the node, leaseRenewInterval between two renewals of its lease, whose
	// duration is leaseSeconds.
	syncInterval       = time.Second
	leaseRenewInterval = 3 * time.Second
	leaseSeconds       = 40
	// maxFailures is the number of consecutive failures after which a kubelet tries another API server.
	maxFailures = 3
)

// Machine is what a kubelet needs from its machine.
type Machine interface {
	// Logf writes a line to the console.
	Logf(format string, args ...any)
	// Go runs a function in a goroutine that the machine waits for when its boot ends.
	Go(run func())
	// KubeletStopped reports whether the kubelet's service was stopped, or restarts with other authorities.
	KubeletStopped() bool
	// Host describes the machine to its programs; it fails if the machine is going down.
	Host() (controlplane.Host, error)
	// KubeletFacts returns the current facts of the machine.
	KubeletFacts() Facts
	// StaticPods returns the started static pods.
	StaticPods() []StaticPod
	// Registration returns the Node with which the kubelet registers.
	Registration() (*corev1.Node, error)
	// NodeRegistered records that the API server has the node, RegistrationFailed why it does not.
	NodeRegistered(created bool)
	RegistrationFailed(text string)
	// NodeApplied records why the API server refuses the state that Talos wants for the node; empty if it accepts.
	NodeApplied(refusal string)
}

// Facts are what a kubelet knows of its machine.
type Facts struct {
	// Config is nil once the machine is going down; the other fields are invalid then.
	Config config.Provider
	// Node describes the machine, Desired the state that Talos wants for the node.
	Node    nodes.Machine
	Desired nodes.Desired
	// Address is the node's, Network its pod CIDR; invalid if it has none yet.
	Address netip.Addr
	Network netip.Prefix
	GPUs    pods.GPUs
	// KubePrism is its port; 0 if it does not work.
	KubePrism int
	// API is the address at which pods reach the API server, in place of its service's.
	API netip.AddrPort
	// Binaries is the folder with the lab's programs of images, Dir the machine's own folder; empty once it is going down.
	Binaries, Dir string
}

// StaticPod is a started static pod of a control plane.
type StaticPod struct {
	Name, Image string
	// Version is the resource version of its settings in Talos, Secrets that of its certificates.
	Version, Secrets string
	// Ready reports whether its process runs and is healthy.
	Ready bool
}

// Kubelet runs pods on a machine.
type Kubelet struct {
	m     Machine
	clock datacentre.Clock

	mu sync.Mutex
	// pods are keyed by UID; bootCtx ends with the machine's boot, and ends them.
	pods    map[string]*localPod
	bootCtx context.Context //nolint:containedctx // containers live longer than any call
	// cniInstalled: the pods have a network.
	cniInstalled bool
	// session is the current one; nil = none.
	session *session
	// syncMu is held while a pod is synced.
	syncMu sync.Mutex
}

// New returns the kubelet of a machine.
func New(m Machine, clock datacentre.Clock) *Kubelet {
	return &Kubelet{m: m, clock: clock}
}

// Reset forgets all pods for a new boot, which ends with the context.
func (k *Kubelet) Reset(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.pods, k.bootCtx = map[string]*localPod{}, ctx
}

// Server is an API server for a kubelet.
type Server struct {
	// Node is the node's name.
	Node string
	// Client has the rights of the node. Talos has those with which Talos changes its node: on control planes, the
	// administrator's.
	Client, Talos kubernetes.Interface
}

// session is a kubelet's connection to one API server.
type session struct {
	Server

	k      *Kubelet
	events record.EventRecorder
}

// errNoServer is returned while the kubelet reaches no API server.
var errNoServer = errors.New("the kubelet reaches no API server")

// activeSession returns the current session with an API server.
func (k *Kubelet) activeSession() (*session, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.session == nil {
		return nil, errNoServer
	}

	return k.session, nil
}

// Run registers the node and syncs it until the kubelet is stopped or its API server is lost.
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

// register creates the Node, or adopts the existing one.
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

// syncNode posts the node's status if it changed, lets Talos apply its labels, annotations and taints, and syncs the
// mirror pods.
func (r *session) syncNode(ctx context.Context) error {
	node, err := r.Client.CoreV1().Nodes().Get(ctx, r.Node, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil // deleted; registered again when the kubelet restarts
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
		return nil // the next sync reads the change
	}

	return err
}
