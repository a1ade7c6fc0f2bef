package machine

import (
	"context"
	"net/netip"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/pods"
)

// findAPIServer is how etcd and Kubernetes run on a machine: their model in this process, or the real ones as processes of
// labkube. What is known of a cluster is kept in [etcd.Cluster] by both, for everything else that a machine does.
type kubernetes interface {
	// runEtcd is the etcd service of a control plane: it waits for a bootstrap or for a cluster to join, then runs the
	// member until the context ends.
	runEtcd(ctx context.Context)
	// runStaticPods runs a control plane's static pods once etcd serves.
	runStaticPods(ctx context.Context)
	// runKubelet registers the machine's node and speaks for it.
	runKubelet(ctx context.Context)
	// bootstrap lets the etcd service begin a cluster; the caller holds the lock.
	bootstrap()
	// recoverEtcd lets it begin a cluster from the uploaded snapshot, which awaits where it is to be written to; the
	// caller holds the lock.
	recoverEtcd(skipHash bool) error
	snapshotPath() (path string, err error)
	// databasePath is where the etcd member's database lies; empty = there is none to read. The caller holds the lock.
	databasePath() string
	// withEtcd asks a member of a cluster with the machine's right to it: the one at the address, or the machine's own
	// where that is invalid.
	withEtcd(ctx context.Context, e *etcd.Cluster, at netip.Addr, ask func(context.Context, controlplane.Etcd) error) error
	// drain evicts the pods of the machine's node, which Talos has cordoned.
	drain(ctx context.Context) error
	// nodePods are the containers that run on the machine's node, but those of static pods; the caller holds the lock.
	nodePods() []pods.Container
	// appProblem is what the pods of an app in kube-system miss, by their label k8s-app; empty where they run.
	appProblem(ctx context.Context, app string, controlPlanes int) string
	// bootstrapManifests are those that Talos adds to the configuration's; the caller holds the lock.
	bootstrapManifests() []manifests.Manifest
	// createObject creates an object of a manifest; what exists stays as it is.
	createObject(ctx context.Context, content map[string]any) error
}

// runManifests applies the manifests of a control plane until the context ends.
func (m *machine) runManifests(ctx context.Context) {
	manifests.Run(ctx, manifests.Machine{
		Await: func(ctx context.Context, wanted func([]manifests.Manifest) bool) bool {
			return m.cluster.await(ctx, func() bool { return m.config != nil && m.apiReady() && wanted(m.manifests()) })
		},
		Create: m.kube.createObject, Logf: m.Logf, Sleep: m.sleep,
	})
}

// manifests are those of the configuration and Talos' own, as real Kubernetes runs these; the model shows them without
// manifests. The caller holds the lock.
func (m *machine) manifests() []manifests.Manifest {
	return append(m.kube.bootstrapManifests(), manifests.FromConfig(m.config)...)
}

// staticPods are the containers of this control plane's static pods while its API server runs; the caller holds the
// lock.
func (m *machine) staticPods() []pods.Container {
	if !m.isControlPlane() || !m.apiServerUp {
		return nil
	}

	var list []pods.Container
	for _, name := range controlplane.StaticPods() {
		list = append(list, pods.Container{
			Namespace: pods.System, Pod: name + "-" + m.hostname, Name: name,
			Image: controlplane.StaticPodImage(m.config, name),
		})
	}

	return list
}

// setAPIServerUp notes whether the API server answers; the caller holds the lock.
func (m *machine) setAPIServerUp(ready bool) {
	if ready == m.apiServerUp {
		return
	}

	m.apiServerUp = ready
	m.logfLocked("[talos] kube-apiserver is %s", map[bool]string{true: "ready", false: "not ready"}[ready])
	m.cluster.changed.fire()
	m.changed.fire()
	m.publishStatus()
}
