package machine

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/doors"
)

const (
	// serverPoll is how often an API server that starts is asked whether it is ready, serverLook how often one that is.
	serverPoll = 250 * time.Millisecond
	serverLook = 2 * time.Second
	// serverPatience bounds one question.
	serverPatience = 5 * time.Second
)

// runServers implements kubernetes: the API server first, then what needs it.
func (k *realKubernetes) runServers(ctx context.Context) {
	m := k.m
	if !m.cluster.await(ctx, m.serving) {
		return
	}

	static, parts, err := k.newStaticParts()
	if err != nil {
		m.fail("kube-apiserver: %s", err)

		return
	}

	host := static.host

	administrator, err := controlplane.AsAdministrator(host.Config, host.APIServer())
	if err != nil {
		m.fail("kube-apiserver: %s", err)

		return
	}

	m.doors.SetKubernetes(doors.NewForwarder(netip.AddrPortFrom(host.Address,
		uint16(host.Config.Cluster().LocalAPIServerPort())))) //nolint:gosec // a port

	defer static.stop()

	var running sync.WaitGroup
	defer running.Wait() // first, as it starts parts again

	if err := static.start(ctx, parts[0]); err != nil {
		m.fail("%s", err)

		return
	}

	if !k.followServer(ctx, administrator, func(ready bool) bool { return ready }) {
		return
	}

	for _, p := range parts[1:] {
		if err := static.start(ctx, p); err != nil {
			m.fail("%s", err)

			return
		}
	}

	running.Go(func() { static.follow(ctx) })

	m.ms.mu.Lock()

	addresses, port := m.serveAddresses(), uint16(host.Config.Cluster().LocalAPIServerPort()) //nolint:gosec // a port
	for vip := range m.vips {
		addresses = append(addresses, netip.MustParseAddr(vip))
	}
	m.ms.mu.Unlock()

	m.doors.OpenKubernetes(addresses, port)
	running.Go(func() { k.observeNodes(ctx, administrator) })
	k.followServer(ctx, administrator, func(bool) bool { return false })
}

// servers are the control plane's parts as the configuration wants them.
func (k *realKubernetes) servers() (controlplane.Host, []controlplane.Part, error) {
	host, err := k.host()
	if err != nil {
		return host, nil, err
	}

	parts, err := host.KubernetesParts()

	return host, parts, err
}

// followServer keeps asking whether the API server is ready until it is as wanted; false when the context ended first.
func (k *realKubernetes) followServer(ctx context.Context, client *rest.RESTClient, wanted func(ready bool) bool) bool {
	m := k.m

	for {
		ready := isReady(ctx, client)

		m.ms.mu.Lock()

		if ready != m.apiUp && ctx.Err() == nil {
			m.apiUp = ready
			m.logf("[talos] kube-apiserver is %s", map[bool]string{true: "ready", false: "not ready"}[ready])
			m.cluster.changed.fire()
			m.changed.fire()
			m.publishStatus()
		}

		m.ms.mu.Unlock()

		if wanted(ready) {
			return true
		}

		pause := serverPoll
		if ready {
			pause = serverLook
		}

		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

func isReady(ctx context.Context, client *rest.RESTClient) bool {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()

	return client.Get().AbsPath("/readyz").Do(ctx).Error() == nil
}

// createObject implements kubernetes.
func (k *realKubernetes) createObject(ctx context.Context, content map[string]any) error {
	m := k.m

	m.ms.mu.Lock()

	if m.config == nil || !m.apiReady() {
		m.ms.mu.Unlock()

		return errNoEtcd
	}

	cfg, server := m.config, apiServerOf(m)
	m.ms.mu.Unlock()

	client, err := controlplane.AsAdministrator(cfg, server)
	if err != nil {
		return err
	}

	created, err := controlplane.Create(ctx, client, content)
	if created != "" {
		m.say("[talos] created %s", created)
	}

	return err
}
