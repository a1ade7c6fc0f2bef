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

	if authentication := cfg.K8sAuthenticationConfig(); authentication != nil {
		policies = append(policies, authentication.Configuration())
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

// components are the components of a control plane since a boot, which restart like static pods.
type components struct {
	s    *StaticPods
	host controlplane.Host

	running  map[string]func() // stop functions
	secrets  int               // version since the boot
	trust    string
	settings map[string]string
}

// newComponents returns the components for the current configuration.
func (s *StaticPods) newComponents() (*components, []controlplane.Component, error) {
	s.mu.Lock()
	s.started = map[string]kubelet.StaticPod{}
	s.mu.Unlock()

	c := &components{s: s, running: map[string]func(){}}

	list, err := c.load()
	if err == nil {
		c.settings = settings(c.host.Config)
	}

	return c, list, err
}

// load reads the current configuration, and returns its components.
func (c *components) load() ([]controlplane.Component, error) {
	host, err := c.s.m.Host()
	if err != nil {
		return nil, err
	}

	if trust := certificates.ClusterTrust(host.Config); trust != c.trust {
		c.trust = trust
		c.secrets++
	}

	c.host = host

	return host.KubernetesComponents()
}

// start starts a component, which its mirror pod shows from now on.
func (c *components) start(ctx context.Context, p controlplane.Component) error {
	pod, err := c.s.newStaticPod(ctx, c.host, p.Name)
	if err != nil {
		return err
	}

	pod.Secrets = strconv.Itoa(c.secrets)

	c.s.mu.Lock()
	c.s.started[p.Name] = pod
	c.s.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)

	var process sync.WaitGroup

	host := c.host

	process.Go(func() { host.Run(ctx, p, c.s.processState(p.Name)) })

	c.running[p.Name] = func() {
		cancel()
		process.Wait()
	}

	return nil
}

// stop stops all components.
func (c *components) stop() {
	for _, stop := range c.running {
		stop()
	}
}

// watchConfig restarts components whose settings change, one after another, until the context ends.
func (c *components) watchConfig(ctx context.Context) {
	for {
		var next map[string]string

		if !c.s.m.AwaitConfig(ctx, func(cfg config.Provider) bool {
			next = settings(cfg)

			return !maps.Equal(next, c.settings)
		}) {
			return
		}

		list, err := c.load()

		for _, p := range list {
			if next[p.Name] != c.settings[p.Name] && err == nil {
				err = c.restart(ctx, p)
			}
		}

		c.settings = next

		if err != nil && ctx.Err() == nil {
			c.s.m.ReportProblem("%s", err)
		}
	}
}

// restart restarts a component with other arguments.
func (c *components) restart(ctx context.Context, p controlplane.Component) error {
	c.s.m.Logf("[talos] %s: its settings have changed: restarting it as %s", p.Name, p.Version)

	c.s.mu.Lock()
	c.s.down[p.Name] = errRestarting
	c.s.mu.Unlock()

	if p.Name == controlplane.APIServer {
		c.s.m.APIServerReady(ctx, false)
	}

	c.running[p.Name]()

	return c.start(ctx, p)
}
