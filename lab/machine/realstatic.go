package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/kubelet"
	"talos-proxmox/lab/machine/resources"
)

// errStarting is why a part does not run that is started with other settings.
var errStarting = errors.New("it is being started with other settings")

// staticSettings are those of the control plane's static pods, by name; the caller holds the machines' lock.
func (m *machine) staticSettings() map[string]string {
	settings := map[string]string{}
	for _, r := range resources.ControlPlane(m.config) {
		settings[r.Metadata().ID()] = fmt.Sprint(r.Spec())
	}

	server := m.config.Cluster().APIServer()
	policies := []any{server.AuditPolicy()}

	for _, plugin := range server.AdmissionControl() {
		policies = append(policies, plugin.Name(), plugin.Configuration())
	}

	settings[staticPodNames[0]] += fmt.Sprint(policies...)

	return settings
}

// staticParts runs the parts of a control plane as a kubelet runs static pods.
type staticParts struct {
	k    *realKubernetes
	host controlplane.Host

	running  map[string]func() // stops a part
	settings map[string]string
}

// newStaticParts makes the parts of the configuration.
func (k *realKubernetes) newStaticParts() (*staticParts, []controlplane.Part, error) {
	k.m.ms.mu.Lock()
	settings := k.m.staticSettings()
	k.m.ms.mu.Unlock()

	k.mu.Lock()
	k.static = map[string]kubelet.StaticPod{}
	k.mu.Unlock()

	host, parts, err := k.servers()

	return &staticParts{k: k, host: host, running: map[string]func(){}, settings: settings}, parts, err
}

// start starts a part, which mirror pods show from now on.
func (s *staticParts) start(ctx context.Context, p controlplane.Part) error {
	pod, err := s.k.settingsOf(ctx, p.Name)
	if err != nil {
		return err
	}

	s.k.mu.Lock()
	s.k.static[p.Name] = pod
	s.k.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)

	var process sync.WaitGroup

	host := s.host

	process.Go(func() { host.Run(ctx, p, s.k.state(p.Name)) })

	s.running[p.Name] = func() {
		cancel()
		process.Wait()
	}

	return nil
}

// stop stops all parts.
func (s *staticParts) stop() {
	for _, stop := range s.running {
		stop()
	}
}

// follow starts parts again whose settings have changed, one after another, until the context ends.
func (s *staticParts) follow(ctx context.Context) {
	m := s.k.m

	for {
		var next map[string]string

		if !m.cluster.await(ctx, func() bool {
			next = m.staticSettings()

			return m.config != nil && !maps.Equal(next, s.settings)
		}) {
			return
		}

		host, parts, err := s.k.servers()
		if err == nil {
			s.host = host

			for _, p := range parts {
				if next[p.Name] != s.settings[p.Name] && err == nil {
					err = s.restart(ctx, p)
				}
			}
		}

		s.settings = next

		if err != nil && ctx.Err() == nil {
			m.fail("%s", err)
		}
	}
}

// restart ends a part and starts it with other arguments.
func (s *staticParts) restart(ctx context.Context, p controlplane.Part) error {
	m := s.k.m
	m.say("[talos] %s: its settings have changed, it is started again as %s", p.Name, p.Version)

	s.k.mu.Lock()
	s.k.down[p.Name] = errStarting
	s.k.mu.Unlock()

	if p.Name == staticPodNames[0] {
		m.ms.mu.Lock()
		m.apiUp = false
		m.cluster.changed.fire()
		m.ms.mu.Unlock()
	}

	s.running[p.Name]()

	return s.start(ctx, p)
}

// settingsOf are the settings of a static pod as Talos shows them at this moment.
func (k *realKubernetes) settingsOf(ctx context.Context, name string) (kubelet.StaticPod, error) {
	kind := map[string]resource.Type{
		k8s.APIServerConfigID: k8s.APIServerConfigType, k8s.ControllerManagerConfigID: k8s.ControllerManagerConfigType,
		k8s.SchedulerConfigID: k8s.SchedulerConfigType,
	}[name]

	r, err := k.m.resources().Get(
		ctx, resource.NewMetadata(k8s.ControlPlaneNamespaceName, kind, name, resource.VersionUndefined),
	)
	if err != nil {
		return kubelet.StaticPod{}, fmt.Errorf("%s: %w", name, err)
	}

	k.m.ms.mu.Lock()
	defer k.m.ms.mu.Unlock()

	if k.m.config == nil {
		return kubelet.StaticPod{}, errors.New("the machine is going down")
	}

	return kubelet.StaticPod{
		Name: name, Image: k.m.staticPodImage(name), Version: r.Metadata().Version().String(),
	}, nil
}
