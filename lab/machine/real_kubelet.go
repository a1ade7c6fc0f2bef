package machine

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/kubelet"
	"talos-proxmox/lab/machine/listeners"
	"talos-proxmox/lab/machine/pods"
)

// kubeletRetryInterval is how long a kubelet waits before it tries another API server.
const kubeletRetryInterval = time.Second

// servicePort is the port on the machine's own address that leads its pods to the API servers, since the address of the
// service default/kubernetes is not routed in the lab. It is KubePrism's port number.
const servicePort = constants.DefaultKubePrismPort

// readyAPIServer returns the address of a ready API server; invalid if there is none.
func (k *realKubernetes) readyAPIServer() netip.AddrPort {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	if k.config == nil {
		return netip.AddrPort{}
	}

	for _, o := range k.cluster.controlPlanes() {
		if o.apiReady() {
			return apiServerAddr(o)
		}
	}

	return netip.AddrPort{}
}

// runKubelet implements kubernetes.
func (k *realKubernetes) runKubelet(ctx context.Context) {
	k.agent.Reset(ctx)

	if !k.awaitNodeIP(ctx) {
		return
	}

	k.agent.LoadCNI()

	k.ms.mu.Lock()
	k.kubeletCert, k.lastServer = nil, nil
	k.ms.mu.Unlock()

	service := listeners.NewBalancer(k.readyAPIServer)

	k.Go(func() {
		<-ctx.Done()

		_ = service.Close() // with all connections
	})
	k.listeners.Open(netip.AddrPortFrom(k.nodeAddress(), servicePort), service.Serve)

	k.Go(func() { k.runKubeletAPI(ctx) })

	if !k.startKubelet(ctx) {
		return
	}

	for ctx.Err() == nil {
		server, err := k.connect(ctx)
		if err != nil {
			k.Logf("[talos] kubelet: %s", err)
		} else if server.Client != nil {
			k.agent.Run(ctx, server)
		}

		controlplane.Sleep(ctx, kubeletRetryInterval)
	}
}

// runKubeletAPI serves the kubelet's own API while its service runs.
func (k *realKubernetes) runKubeletAPI(ctx context.Context) {
	serving := k.agent.ServingCertificate(ctx)

	for {
		if !k.cluster.await(ctx, func() bool { return !k.services.Stopped("kubelet") }) {
			return
		}

		server := k.agent.Server(serving)

		k.listeners.Open(netip.AddrPortFrom(k.nodeAddress(), constants.KubeletPort), func(ln net.Listener) error {
			return server.ServeTLS(ln, "", "")
		})

		k.cluster.await(ctx, func() bool { return k.services.Stopped("kubelet") })

		_ = server.Close() // with all streams
	}
}

// nodeAddress returns the address of the node.
func (k *realKubernetes) nodeAddress() netip.Addr {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	return k.net.Node
}

// connect waits for an API server that the machine reaches; s.Client is nil if the context ended first. After it lost a
// server or was refused, it tries the next one: a kubelet closes connections after failed heartbeats, and KubePrism
// rotates. A kubelet that starts tries the nearest first. It keeps its certificate as long as the configuration accepts
// the authority that signed it (internal/app/machined/pkg/controllers/k8s/kubelet_service.go: refreshKubeletCerts).
func (k *realKubernetes) connect(ctx context.Context) (s kubelet.Server, err error) {
	k.cluster.await(ctx, func() bool {
		if k.config == nil || k.services.Stopped("kubelet") {
			k.lastServer = nil

			return false
		}

		trust := certificates.ClusterTrust(k.config)
		if k.kubeletTrust != trust {
			k.lastServer = nil
		}

		servers := k.apiServers()
		if len(servers) == 0 {
			return false
		}

		server := servers[(slices.Index(servers, k.lastServer)+1)%len(servers)]

		k.lastServer, k.kubeletTrust, s.Node = server, trust, k.hostname
		if k.kubeletCert == nil || !certificates.TrustsCertificate(k.config, k.kubeletCert.Crt) {
			k.kubeletCert, err = controlplane.KubeletCertificate(server.config, k.hostname)
		}

		if err == nil {
			s.Client, err = controlplane.KubeletClient(k.config, apiServerURL(server), k.hostname, k.kubeletCert)
		}

		s.Talos = s.Client

		if err == nil && k.isControlPlane() {
			s.Talos, err = controlplane.AdminClient(server.config, apiServerURL(server))
		}

		return true
	})

	return s, err
}

// drain implements kubernetes. A node that has never joined has nothing to drain.
func (k *realKubernetes) drain(ctx context.Context) error {
	k.ms.mu.Lock()
	registered := k.disk.KubeletRegistered && !k.services.Stopped("kubelet")
	k.ms.mu.Unlock()

	if !registered {
		return nil
	}

	return k.agent.Drain(ctx)
}

// nodePods implements kubernetes.
func (k *realKubernetes) nodePods() []pods.Container { return k.agent.Containers() }

// KubeletStopped implements kubelet.Machine.
func (k *realKubernetes) KubeletStopped() bool {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	return k.services.Stopped("kubelet") || k.config != nil && k.kubeletTrust != certificates.ClusterTrust(k.config)
}

// KubeletFacts implements kubelet.Machine.
func (k *realKubernetes) KubeletFacts() kubelet.Facts {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	facts := kubelet.Facts{
		Config: k.config, Address: k.net.Node, GPUs: k.gpus(), API: netip.AddrPortFrom(k.net.Node, servicePort),
	}
	if k.config == nil {
		return facts
	}

	facts.Node, facts.Desired = k.nodeMachine(), k.desiredNode()

	if dir, err := k.folder(); err == nil {
		facts.Dir, facts.Binaries = dir, filepath.Dir(k.ms.options.Labkube.Binary)
	}

	if prism := k.config.K8sKubePrismConfig(); prism != nil && k.findAPIServer() != nil {
		facts.KubePrism = prism.Port()
	}

	if e := k.etcdOfNode(); e != nil {
		facts.Network, _ = netip.ParsePrefix(e.Nodes[k.hostname].Spec.PodCIDR) // it may have none yet
	}

	return facts
}

// StaticPods implements kubelet.Machine.
func (k *realKubernetes) StaticPods() []kubelet.StaticPod {
	k.ms.mu.Lock()
	apiUp := k.apiServerUp
	k.ms.mu.Unlock()

	return k.static.Pods(apiUp)
}

// Registration implements kubelet.Machine.
func (k *realKubernetes) Registration() (*corev1.Node, error) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	return k.registration()
}

// NodeRegistered implements kubelet.Machine.
func (k *realKubernetes) NodeRegistered(created bool) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	k.nodeRegistered(created)
}

// RegistrationFailed implements kubelet.Machine.
func (k *realKubernetes) RegistrationFailed(text string) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	k.reportRegistrationFailure(text)
}

// NodeApplied implements kubelet.Machine.
func (k *realKubernetes) NodeApplied(refusal string) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	k.reportNodeRefusal(refusal)
}
