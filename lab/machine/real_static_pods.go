package machine

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config"
	corev1 "k8s.io/api/core/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/listeners"
	"talos-proxmox/lab/machine/manifests"
)

// apiServerURL returns the URL of a control plane's API server; the caller holds the lock.
func apiServerURL(m *machine) string { return "https://" + apiServerAddr(m).String() }

func apiServerAddr(m *machine) netip.AddrPort {
	return netip.AddrPortFrom(m.net.Node, uint16(m.config.K8sAPIServerConfig().APIPort())) //nolint:gosec // a port
}

// runStaticPods implements kubernetes.
func (k *realKubernetes) runStaticPods(ctx context.Context) { k.static.Run(ctx) }

// adminConfig returns an administrator's client configuration for the machine's own API server, as Talos uses it.
func (k *realKubernetes) adminConfig() (*rest.Config, error) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	if k.config == nil || !k.isControlPlane() {
		return nil, fmt.Errorf("no Kubernetes API runs on %s", k.hostname)
	}

	return controlplane.AdminConfig(k.config, apiServerURL(k.machine))
}

// createObject implements kubernetes.
func (k *realKubernetes) createObject(ctx context.Context, content map[string]any) error {
	administrator, err := k.adminConfig()
	if err != nil {
		return err
	}

	created, err := controlplane.Create(ctx, administrator, content)
	if created != "" {
		k.Logf("[talos] created %s", created)
	}

	return err
}

// appProblem implements kubernetes: it asks the machine's own API server, as Talos does.
func (k *realKubernetes) appProblem(ctx context.Context, app string, controlPlanes int) string {
	administrator, err := k.adminConfig()
	if err != nil {
		return err.Error()
	}

	client, err := clientset.NewForConfig(administrator)
	if err != nil {
		return err.Error()
	}

	return controlplane.AppProblem(ctx, client, app, controlPlanes)
}

// bootstrapManifests implements kubernetes.
func (k *realKubernetes) bootstrapManifests() []manifests.Manifest {
	return manifests.Bootstrap(k.config, k.release)
}

// AwaitEtcd implements staticpods.Machine.
func (k *realKubernetes) AwaitEtcd(ctx context.Context) bool {
	return k.cluster.await(ctx, k.etcdReady)
}

// AwaitConfig implements staticpods.Machine.
func (k *realKubernetes) AwaitConfig(ctx context.Context, wanted func(config.Provider) bool) bool {
	return k.cluster.await(ctx, func() bool { return k.config != nil && wanted(k.config) })
}

// APIServerReady implements staticpods.Machine.
func (k *realKubernetes) APIServerReady(ctx context.Context, ready bool) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	if ctx.Err() == nil {
		k.setAPIServerUp(ready)
	}
}

// ForwardAPIServer implements staticpods.Machine.
func (k *realKubernetes) ForwardAPIServer(server netip.AddrPort) {
	k.listeners.SetKubernetes(listeners.NewForwarder(server))
}

// OpenAPIServer implements staticpods.Machine.
func (k *realKubernetes) OpenAPIServer(port uint16) {
	k.ms.mu.Lock()
	addresses := append(k.apiAddresses(), k.heldVIPs()...)
	k.ms.mu.Unlock()

	k.listeners.OpenKubernetes(addresses, port)
}

// ObserveNode implements staticpods.Machine.
func (k *realKubernetes) ObserveNode(n *corev1.Node, deleted bool) {
	k.ms.mu.Lock()
	defer k.ms.mu.Unlock()

	if k.etcd == nil || k.cluster == nil {
		return
	}

	vmid, owner := 0, k.cluster.byHostname(n.Name)
	if owner != nil {
		vmid = owner.hw.VMID
	}

	if !k.etcd.ObserveNode(n, vmid, deleted) {
		return
	}

	// A kubelet registers its node again only when it restarts; until then its status updates are lost.
	if deleted && owner != nil {
		owner.kubelet.posting = false
	}

	k.cluster.changed.fire()

	if owner != nil && owner.config != nil {
		owner.finishBoot()
		owner.changed.fire()
	}
}
