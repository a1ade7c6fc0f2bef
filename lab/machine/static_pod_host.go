package machine

import (
	"context"
	"net/netip"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/config"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/listeners"
	"talos-proxmox/lab/machine/staticpods"
)

// staticPodHost shows a control plane to its static pods. It implements staticpods.Machine.
type staticPodHost struct{ k *realKubernetes }

var _ staticpods.Machine = staticPodHost{}

// Say implements staticpods.Machine.
func (h staticPodHost) Say(format string, args ...any) { h.k.m.say(format, args...) }

// Fail implements staticpods.Machine.
func (h staticPodHost) Fail(format string, args ...any) { h.k.m.fail(format, args...) }

// Host implements staticpods.Machine.
func (h staticPodHost) Host() (controlplane.Host, error) { return h.k.host() }

// Resources implements staticpods.Machine.
func (h staticPodHost) Resources() state.State { return h.k.m.resources() }

// AwaitEtcd implements staticpods.Machine.
func (h staticPodHost) AwaitEtcd(ctx context.Context) bool {
	return h.k.m.cluster.await(ctx, h.k.m.serving)
}

// AwaitConfig implements staticpods.Machine.
func (h staticPodHost) AwaitConfig(ctx context.Context, wanted func(config.Provider) bool) bool {
	m := h.k.m

	return m.cluster.await(ctx, func() bool { return m.config != nil && wanted(m.config) })
}

// Process implements staticpods.Machine.
func (h staticPodHost) Process(err error) { h.k.process(err) }

// Ready implements staticpods.Machine.
func (h staticPodHost) Ready(ctx context.Context, ready bool) {
	h.k.m.ms.mu.Lock()
	defer h.k.m.ms.mu.Unlock()

	if ctx.Err() == nil {
		h.k.m.setAPI(ready)
	}
}

// setAPI notes whether the API server answers; the caller holds the lock.
func (m *machine) setAPI(ready bool) {
	if ready == m.apiUp {
		return
	}

	m.apiUp = ready
	m.logf("[talos] kube-apiserver is %s", map[bool]string{true: "ready", false: "not ready"}[ready])
	m.cluster.changed.fire()
	m.changed.fire()
	m.publishStatus()
}

// Forward implements staticpods.Machine.
func (h staticPodHost) Forward(server netip.AddrPort) {
	h.k.m.listeners.SetKubernetes(listeners.NewForwarder(server))
}

// Open implements staticpods.Machine.
func (h staticPodHost) Open(port uint16) {
	m := h.k.m

	m.ms.mu.Lock()
	addresses := append(m.serveAddresses(), m.heldIPs()...)
	m.ms.mu.Unlock()

	m.listeners.OpenKubernetes(addresses, port)
}

// SawNode implements staticpods.Machine.
func (h staticPodHost) SawNode(n *corev1.Node, deleted bool) {
	m := h.k.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.etcd == nil || m.cluster == nil {
		return
	}

	vmid, of := 0, m.cluster.named(n.Name)
	if of != nil {
		vmid = of.hw.VMID
	}

	if !m.etcd.SawNode(n, vmid, deleted) {
		return
	}

	// A kubelet does not register its node again before it restarts; until then it posts into the void.
	if deleted && of != nil {
		of.kubelet.posting = false
	}

	m.cluster.changed.fire()

	if of != nil && of.config != nil {
		of.settle()
		of.changed.fire()
	}
}
