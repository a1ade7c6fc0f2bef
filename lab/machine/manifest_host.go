package machine

import (
	"context"

	"talos-proxmox/lab/machine/manifests"
)

// runManifests applies the manifests of a control plane until the context ends.
func (m *machine) runManifests(ctx context.Context) {
	manifests.Run(ctx, manifests.Machine{
		Await: func(ctx context.Context, wanted func([]manifests.Manifest) bool) bool {
			return m.cluster.await(ctx, func() bool { return m.config != nil && m.apiReady() && wanted(m.manifests()) })
		},
		Create: m.kube.createObject, Say: m.say, Sleep: m.sleep,
	})
}

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
