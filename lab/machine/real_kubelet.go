package machine

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/kubelet"
	"talos-proxmox/lab/machine/listeners"
	"talos-proxmox/lab/machine/pods"
)

// kubeletPause is how long a kubelet waits before it looks for an API server again.
const kubeletPause = time.Second

// servicePort is where a machine leads its pods to the API servers, at its own address: that of the service
// default/kubernetes leads nowhere in the lab. It is the number of KubePrism's.
const servicePort = constants.DefaultKubePrismPort

// serviceTarget is an API server that answers; invalid while none does.
func (k *realKubernetes) serviceTarget() netip.AddrPort {
	m := k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil {
		return netip.AddrPort{}
	}

	for _, o := range m.cluster.controlPlanes() {
		if o.apiReady() {
			return apiServerAt(o)
		}
	}

	return netip.AddrPort{}
}

// runKubelet implements kubernetes.
func (k *realKubernetes) runKubelet(ctx context.Context) {
	m := k.m

	k.kubelet.Boot(ctx)

	if !m.awaitNodeIP(ctx) {
		return
	}

	k.kubelet.LoadCNI()

	m.ms.mu.Lock()
	k.identity, k.asked = nil, nil
	m.ms.mu.Unlock()

	service := listeners.NewBalancer(k.serviceTarget)

	m.track(func() {
		<-ctx.Done()

		_ = service.Close() // and every connection with it
	})
	m.listeners.Open(netip.AddrPortFrom(m.nodeAddress(), servicePort), service.Serve)

	m.track(func() { k.runAPI(ctx) })

	if !m.startKubelet(ctx) {
		return
	}

	for ctx.Err() == nil {
		server, err := k.connect(ctx)
		if err != nil {
			m.say("[talos] kubelet: %s", err)
		} else if server.Client != nil {
			k.kubelet.Run(ctx, server)
		}

		controlplane.Wait(ctx, kubeletPause)
	}
}

// runAPI serves the kubelet's own API while its service runs.
func (k *realKubernetes) runAPI(ctx context.Context) {
	m := k.m
	serving := k.kubelet.Serving(ctx)

	for {
		if !m.cluster.await(ctx, func() bool { return !m.services.Stopped("kubelet") }) {
			return
		}

		server := k.kubelet.Server(serving)

		m.listeners.Open(netip.AddrPortFrom(m.nodeAddress(), constants.KubeletPort), func(ln net.Listener) error {
			return server.ServeTLS(ln, "", "")
		})

		m.cluster.await(ctx, func() bool { return m.services.Stopped("kubelet") })

		_ = server.Close() // and every stream with it
	}
}

// nodeAddress is the node's.
func (m *machine) nodeAddress() netip.Addr {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	return m.net.Node
}

// connect waits for an API server that the machine reaches; it has no client when the context ended first. Where the
// kubelet has lost one, or was refused, it asks the next, as a kubelet ends the connections of failed heartbeats and
// KubePrism takes turns; one that starts begins with the nearest. It keeps its certificate for as long as the
// configuration accepts the authority that signed it (internal/app/machined/pkg/controllers/k8s/kubelet_service.go:
// refreshKubeletCerts).
func (k *realKubernetes) connect(ctx context.Context) (s kubelet.Server, err error) {
	m := k.m

	m.cluster.await(ctx, func() bool {
		if m.config == nil || m.services.Stopped("kubelet") {
			k.asked = nil

			return false
		}

		trust := certificates.ClusterTrust(m.config)
		if k.linked != trust {
			k.asked = nil
		}

		servers := m.apiServers()
		if len(servers) == 0 {
			return false
		}

		server := servers[(slices.Index(servers, k.asked)+1)%len(servers)]

		k.asked, k.linked, s.Node = server, trust, m.hostname
		if k.identity == nil || !certificates.Trusts(m.config, k.identity.Crt) {
			k.identity, err = controlplane.KubeletCertificate(server.config, m.hostname)
		}

		if err == nil {
			s.Client, err = controlplane.AsKubelet(m.config, apiServerOf(server), m.hostname, k.identity)
		}

		s.Talos = s.Client

		if err == nil && m.isControlPlane() {
			s.Talos, err = controlplane.AsAdministrator(server.config, apiServerOf(server))
		}

		return true
	})

	return s, err
}

// drain implements kubernetes. A node that has never joined has nothing to drain.
func (k *realKubernetes) drain(ctx context.Context) error {
	m := k.m

	m.ms.mu.Lock()
	drains := m.disk.KubeletRegistered && !m.services.Stopped("kubelet")
	m.ms.mu.Unlock()

	if !drains {
		return nil
	}

	return k.kubelet.Drain(ctx)
}

// nodePods implements kubernetes.
func (k *realKubernetes) nodePods(*etcd.Cluster) []pods.Container { return k.kubelet.Containers() }
