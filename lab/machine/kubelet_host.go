package machine

import (
	"crypto/x509"
	"net/netip"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/kubelet"
	"talos-proxmox/lab/machine/nodes"
)

// kubeletHost shows a machine to its kubelet. It implements kubelet.Machine.
type kubeletHost struct{ k *realKubernetes }

var _ kubelet.Machine = kubeletHost{}

// Say implements kubelet.Machine.
func (h kubeletHost) Say(format string, args ...any) { h.k.m.say(format, args...) }

// Track implements kubelet.Machine.
func (h kubeletHost) Track(run func()) { h.k.m.track(run) }

// Stopped implements kubelet.Machine.
func (h kubeletHost) Stopped() bool {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	m := h.k.m

	return m.services.Stopped("kubelet") || m.config != nil && h.k.linked != certificates.ClusterTrust(m.config)
}

// Host implements kubelet.Machine.
func (h kubeletHost) Host() (controlplane.Host, error) { return h.k.host() }

// Facts implements kubelet.Machine.
func (h kubeletHost) Facts() kubelet.Facts {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	facts := kubelet.Facts{
		Config: m.config, Address: m.net.Node, GPUs: m.gpus(), API: netip.AddrPortFrom(m.net.Node, servicePort),
	}
	if m.config == nil {
		return facts
	}

	if dir, err := h.k.folder(); err == nil {
		facts.Dir, facts.Binaries = dir, filepath.Dir(m.ms.options.Labkube.Binary)
	}

	if prism := m.config.K8sKubePrismConfig(); prism != nil && m.kubernetes() != nil {
		facts.KubePrism = prism.Port()
	}

	if e := m.etcdOfNode(); e != nil {
		facts.Network, _ = netip.ParsePrefix(e.Nodes[m.hostname].Spec.PodCIDR) // it may have none yet
	}

	return facts
}

// Authorities implements kubelet.Machine.
func (h kubeletHost) Authorities() *x509.CertPool {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	if h.k.m.config == nil {
		return x509.NewCertPool()
	}

	return certificates.ClusterPool(h.k.m.config)
}

// StaticPods implements kubelet.Machine.
func (h kubeletHost) StaticPods() []kubelet.StaticPod {
	m := h.k.m

	m.ms.mu.Lock()
	apiUp := m.apiUp
	m.ms.mu.Unlock()

	return h.k.static.Pods(apiUp)
}

// Registration implements kubelet.Machine.
func (h kubeletHost) Registration() (map[string]string, corev1.NodeSpec, error) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	taints, err := nodes.RegistrationTaints(h.k.m.config, h.k.m.release)

	return h.k.m.kubeletLabels(), corev1.NodeSpec{
		Taints: taints, ProviderID: nodes.RegistrationProviderID(h.k.m.config),
	}, err
}

// Registered implements kubelet.Machine.
func (h kubeletHost) Registered(created bool) {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if created {
		m.logf("[talos] kubelet: registered node %q", m.hostname)
	}

	m.kubelet.posting, m.disk.KubeletRegistered = true, true
	m.save()
	m.cluster.changed.fire()
	m.changed.fire()
}

// Refused implements kubelet.Machine.
func (h kubeletHost) Refused(text string) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	h.k.m.refuseKubelet(text)
}

// Describe implements kubelet.Machine.
func (h kubeletHost) Describe(s *corev1.NodeStatus) bool {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil {
		return false
	}

	m.asNode().Describe(s)

	return true
}

// Want implements kubelet.Machine.
func (h kubeletHost) Want(n *corev1.Node) bool {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	return m.config != nil && m.nodeWishes().Apply(n)
}

// Applied implements kubelet.Machine.
func (h kubeletHost) Applied(refusal string) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	h.k.m.refuseNode(refusal)
}
