// Package staticpods runs the static pods of a control plane with real Kubernetes: the API server first, then the
// controller manager and the scheduler. Each restarts when the configuration changes its settings. It observes whether
// the API server is ready, and its nodes.
package staticpods

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/kubelet"
)

// Machine is what static pods need from their control plane. No method is called with a lock held.
type Machine interface {
	// Logf writes a line to the console, ReportProblem why the machine's Kubernetes cannot be reached.
	Logf(format string, args ...any)
	ReportProblem(format string, args ...any)
	// Host describes the machine to its programs; it fails if the machine is going down.
	Host() (controlplane.Host, error)
	// Resources returns the machine's COSI resources, up to date.
	Resources() state.State
	// AwaitEtcd waits until the machine's etcd member votes in a cluster with quorum, AwaitConfig until wanted returns
	// true, which is called with the machines' lock held. They return false if the context ends first.
	AwaitEtcd(ctx context.Context) bool
	AwaitConfig(ctx context.Context, wanted func(config.Provider) bool) bool
	// ProcessChanged records that the process of a static pod runs, or why it ended.
	ProcessChanged(err error)
	// APIServerReady records whether the API server is ready, unless the context has ended.
	APIServerReady(ctx context.Context, ready bool)
	// ForwardAPIServer forwards the machine's listeners to its API server, OpenAPIServer opens them at the port.
	ForwardAPIServer(server netip.AddrPort)
	OpenAPIServer(port uint16)
	// ObserveNode stores a Node object of the API server, or its deletion.
	ObserveNode(n *corev1.Node, deleted bool)
}

// StaticPods are the static pods of a machine.
type StaticPods struct {
	m Machine

	mu sync.Mutex
	// down holds each component's error by name; nil = it runs.
	down map[string]error
	// started are the started static pods by name.
	started map[string]kubelet.StaticPod
}

// New returns the static pods of a machine.
func New(m Machine) *StaticPods { return &StaticPods{m: m, down: map[string]error{}} }

// Run runs the static pods once etcd is ready, until the context ends.
func (s *StaticPods) Run(ctx context.Context) {
	if !s.m.AwaitEtcd(ctx) {
		return
	}

	if err := s.run(ctx); err != nil {
		s.m.ReportProblem("%s", err)
	}
}

func (s *StaticPods) run(ctx context.Context) error {
	c, list, err := s.newComponents()
	if err != nil {
		return fmt.Errorf("%s: %w", controlplane.APIServer, err)
	}

	port := uint16(c.host.Config.K8sAPIServerConfig().APIPort()) //nolint:gosec // a port
	s.m.ForwardAPIServer(netip.AddrPortFrom(c.host.Address, port))

	defer c.stop()

	var running sync.WaitGroup
	defer running.Wait() // before stop, as it restarts components

	if err := c.start(ctx, list[0]); err != nil {
		return err
	}

	if err := s.awaitReady(ctx, c.host); err != nil || ctx.Err() != nil {
		return err
	}

	for _, p := range list[1:] {
		if err := c.start(ctx, p); err != nil {
			return err
		}
	}

	running.Go(func() { c.watchConfig(ctx) })
	s.m.OpenAPIServer(port)

	for ctx.Err() == nil {
		if err := s.watch(ctx); err != nil {
			return err
		}
	}

	return nil
}

// awaitReady waits until the API server is ready or the context ends.
func (s *StaticPods) awaitReady(ctx context.Context, host controlplane.Host) error {
	administrator, err := controlplane.AdminClient(host.Config, host.APIServer())
	if err != nil {
		return fmt.Errorf("%s: %w", controlplane.APIServer, err)
	}

	s.pollReady(ctx, administrator, func(ready bool) bool { return ready })

	return nil
}

// watch observes the API server's readiness and nodes until the authorities in the configuration change: Talos then
// creates a new client.
func (s *StaticPods) watch(ctx context.Context) error {
	host, err := s.m.Host()
	if err != nil {
		return nil //nolint:nilerr // the machine is going down
	}

	administrator, err := controlplane.AdminClient(host.Config, host.APIServer())
	if err != nil {
		return fmt.Errorf("%s: %w", controlplane.APIServer, err)
	}

	ctx, stop := context.WithCancel(ctx)
	trust := certificates.ClusterTrust(host.Config)

	var running sync.WaitGroup
	defer running.Wait()

	running.Go(func() {
		defer stop()

		s.m.AwaitConfig(ctx, func(cfg config.Provider) bool { return certificates.ClusterTrust(cfg) != trust })
	})
	running.Go(func() { s.watchNodes(ctx, administrator) })
	s.pollReady(ctx, administrator, func(bool) bool { return false })

	return nil
}

// processState returns a function that records that a component runs, or why it ended.
func (s *StaticPods) processState(component string) func(error) {
	return func(err error) {
		s.mu.Lock()
		s.down[component] = err
		s.mu.Unlock()

		s.m.ProcessChanged(err)
	}
}

// Pods returns the started static pods for the kubelet to mirror. The API server is ready only if it says so itself.
func (s *StaticPods) Pods(apiServerReady bool) []kubelet.StaticPod {
	s.mu.Lock()
	defer s.mu.Unlock()

	var list []kubelet.StaticPod

	for _, name := range controlplane.StaticPods() {
		pod, started := s.started[name]
		if !started {
			continue
		}

		err, ran := s.down[name]
		pod.Ready = ran && err == nil && (name != controlplane.APIServer || apiServerReady)
		list = append(list, pod)
	}

	return list
}

// settingsTypes are the resource types of the settings of static pods.
var settingsTypes = map[string]resource.Type{
	controlplane.APIServer:         k8s.APIServerConfigType,
	controlplane.ControllerManager: k8s.ControllerManagerConfigType,
	controlplane.Scheduler:         k8s.SchedulerConfigType,
}

// newStaticPod describes a static pod with the version of its current settings. In releases with final settings, that
// is their version (internal/app/machined/pkg/controllers/k8s/control_plane_static_pod.go).
func (s *StaticPods) newStaticPod(ctx context.Context, host controlplane.Host, name string) (kubelet.StaticPod, error) {
	id := name
	if host.Release.FinalSettings {
		id = k8s.FinalPrefix + name
	}

	r, err := s.m.Resources().Get(ctx, resource.NewMetadata(
		k8s.ControlPlaneNamespaceName, settingsTypes[name], id, resource.VersionUndefined,
	))
	if err != nil {
		return kubelet.StaticPod{}, fmt.Errorf("%s: %w", name, err)
	}

	return kubelet.StaticPod{
		Name: name, Image: controlplane.StaticPodImage(host.Config, name), Version: r.Metadata().Version().String(),
	}, nil
}
