package machine

import (
	"context"
	"time"

	"talos-proxmox/lab/machine/manifests"
)

// manifestHost shows a control plane to its manifests. It implements manifests.Machine.
type manifestHost struct{ m *machine }

var _ manifests.Machine = manifestHost{}

// Await implements manifests.Machine.
func (h manifestHost) Await(ctx context.Context, wanted func([]manifests.Manifest) bool) bool {
	m := h.m

	return m.cluster.await(ctx, func() bool { return m.config != nil && m.apiReady() && wanted(m.manifests()) })
}

// Create implements manifests.Machine.
func (h manifestHost) Create(ctx context.Context, content map[string]any) error {
	return h.m.kube.createObject(ctx, content)
}

// Say implements manifests.Machine.
func (h manifestHost) Say(format string, args ...any) { h.m.say(format, args...) }

// Sleep implements manifests.Machine.
func (h manifestHost) Sleep(ctx context.Context, d time.Duration) bool { return h.m.sleep(ctx, d) }

// manifests are those of the configuration and Talos' own, as real Kubernetes runs these; the model shows them without
// manifests. The caller holds the lock.
func (m *machine) manifests() []manifests.Manifest {
	return append(m.kube.ownManifests(), manifests.Configured(m.config)...)
}

// ownManifests implements kubernetes.
func (k *realKubernetes) ownManifests() []manifests.Manifest {
	return manifests.Own(k.m.config, k.m.release)
}

// ownManifests implements kubernetes.
func (modelKubernetes) ownManifests() []manifests.Manifest { return nil }

// createObject implements kubernetes: the model keeps what makes nodes offer GPUs, and leaves out everything else.
func (m modelKubernetes) createObject(_ context.Context, content map[string]any) error {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil || !m.apiReady() {
		return errNoEtcd
	}

	if label := m.etcd.Keep(content); label != "" {
		m.logf("[talos] created %s", label)
	}

	return nil
}
