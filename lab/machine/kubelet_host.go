package machine

import (
	"net/netip"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/kubelet"
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

	facts.Node, facts.Wishes = m.asNode(), m.nodeWishes()

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

// StaticPods implements kubelet.Machine.
func (h kubeletHost) StaticPods() []kubelet.StaticPod {
	m := h.k.m

	m.ms.mu.Lock()
	apiUp := m.apiUp
	m.ms.mu.Unlock()

	return h.k.static.Pods(apiUp)
}

// Registration implements kubelet.Machine.
func (h kubeletHost) Registration() (*corev1.Node, error) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	return h.k.m.registration()
}

// Registered implements kubelet.Machine.
func (h kubeletHost) Registered(created bool) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	h.k.m.registered(created)
}

// Refused implements kubelet.Machine.
func (h kubeletHost) Refused(text string) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	h.k.m.refuseKubelet(text)
}

// Applied implements kubelet.Machine.
func (h kubeletHost) Applied(refusal string) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	h.k.m.refuseNode(refusal)
}
