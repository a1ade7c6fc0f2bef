package machine

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"talos-proxmox/lab/machine/controlplane"
)

const (
	// serverPoll is how often an API server that starts is asked whether it is ready, serverLook how often one that is.
	serverPoll = 250 * time.Millisecond
	serverLook = 2 * time.Second
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

	m.doors.SetKubernetes(newForwarder(netip.AddrPortFrom(host.Address,
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
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
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

// forwarder leads the machine's other addresses, the virtual one among them, to its API server. It implements
// doors.Kubernetes.
type forwarder struct {
	target netip.AddrPort

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

func newForwarder(target netip.AddrPort) *forwarder {
	return &forwarder{target: target, open: map[net.Conn]bool{}}
}

func (f *forwarder) Has(a netip.Addr) bool { return a == f.target.Addr() }

// Serve implements doors.Kubernetes.
func (f *forwarder) Serve(ln net.Listener) error {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}

		go f.forward(conn)
	}
}

func (f *forwarder) forward(client net.Conn) {
	server, err := net.Dial("tcp", f.target.String())
	if err != nil {
		_ = client.Close()

		return
	}

	if !f.keep(client, server) {
		return
	}

	defer f.drop(client, server)

	// What one side has ended, the other one hears; the first that ends ends both, as TLS says goodbye by itself.
	done := make(chan struct{}, 2)

	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])

			done <- struct{}{}
		}()
	}

	<-done
}

// keep remembers connections, which a machine that goes down takes with it; false when it has.
func (f *forwarder) keep(connections ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, c := range connections {
		if f.closed {
			_ = c.Close()
		} else {
			f.open[c] = true
		}
	}

	return !f.closed
}

func (f *forwarder) drop(connections ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, c := range connections {
		_ = c.Close()
		delete(f.open, c)
	}
}

// Close implements doors.Kubernetes.
func (f *forwarder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.closed = true
	for c := range f.open {
		_ = c.Close()
	}

	return nil
}
