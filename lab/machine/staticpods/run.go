package staticpods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/kubelet"
	"talos-proxmox/lab/machine/resources"
)

// errRestarting is recorded while a component restarts with other settings.
var errRestarting = errors.New("it is being started with other settings")

// settings returns a fingerprint of the settings of each static pod.
func settings(cfg config.Provider) map[string]string {
	settings := map[string]string{}
	for _, r := range resources.ControlPlane(cfg, "") {
		settings[r.Metadata().ID()] = fmt.Sprint(r.Spec())
	}

	var policies []any

	if policy := cfg.K8sAuditPolicyConfig(); policy != nil {
		policies = append(policies, policy.Configuration())
	}

	for _, plugin := range cfg.K8sAdmissionControlPluginConfigs() {
		policies = append(policies, plugin.Name(), plugin.Configuration())
	}

	settings[controlplane.APIServer] += fmt.Sprint(policies...)

	// Every static pod is annotated with the version of the secrets, so that it restarts when they change
	// (internal/app/machined/pkg/controllers/k8s/control_plane_static_pod.go, secrets/kubernetes.go).
	for name := range settings {
		settings[name] += certificates.ClusterTrust(cfg)
	}

	return settings
}

// run is the components of a control plane since a boot, which restart like static pods.
type run struct {
	s    *StaticPods
	host controlplane.Host

	running  map[string]func() // stop functions
	secrets  int               // version since the boot
	trust    string
	settings map[string]string
}

// newRun returns the components of the configuration.
func (s *StaticPods) newRun() (*run, []controlplane.Component, error) {
	s.mu.Lock()
	s.started = map[string]kubelet.StaticPod{}
	s.mu.Unlock()

	r := &run{s: s, running: map[string]func(){}}

	parts, err := r.load()
	if err == nil {
		r.settings = settings(r.host.Config)
	}

	return r, parts, err
}

// load reads the current configuration, and returns its components.
func (r *run) load() ([]controlplane.Component, error) {
	host, err := r.s.m.Host()
	if err != nil {
		return nil, err
	}

	if trust := certificates.ClusterTrust(host.Config); trust != r.trust {
		r.trust = trust
		r.secrets++
	}

	r.host = host

	return host.KubernetesComponents()
}

// start starts a component, which its mirror pod shows from now on.
func (r *run) start(ctx context.Context, p controlplane.Component) error {
	pod, err := r.s.newStaticPod(ctx, r.host, p.Name)
	if err != nil {
		return err
	}

	pod.Secrets = strconv.Itoa(r.secrets)

	r.s.mu.Lock()
	r.s.started[p.Name] = pod
	r.s.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)

	var process sync.WaitGroup

	host := r.host

	process.Go(func() { host.Run(ctx, p, r.s.processState(p.Name)) })

	r.running[p.Name] = func() {
		cancel()
		process.Wait()
	}

	return nil
}

// stop stops all components.
func (r *run) stop() {
	for _, stop := range r.running {
		stop()
	}
}

// watchConfig restarts components whose settings change, one after another, until the context ends.
func (r *run) watchConfig(ctx context.Context) {
	for {
		var next map[string]string

		if !r.s.m.AwaitConfig(ctx, func(cfg config.Provider) bool {
			next = settings(cfg)

			return !maps.Equal(next, r.settings)
		}) {
			return
		}

		parts, err := r.load()

		for _, p := range parts {
			if next[p.Name] != r.settings[p.Name] && err == nil {
				err = r.restart(ctx, p)
			}
		}

		r.settings = next

		if err != nil && ctx.Err() == nil {
			r.s.m.ReportProblem("%s", err)
		}
	}
}

// restart restarts a component with other arguments.
func (r *run) restart(ctx context.Context, p controlplane.Component) error {
	r.s.m.Logf("[talos] %s: its settings have changed: restarting it as %s", p.Name, p.Version)

	r.s.mu.Lock()
	r.s.down[p.Name] = errRestarting
	r.s.mu.Unlock()

	if p.Name == controlplane.APIServer {
		r.s.m.APIServerReady(ctx, false)
	}

	r.running[p.Name]()

	return r.start(ctx, p)
}
