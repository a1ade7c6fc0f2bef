package machine

import (
	"context"
	"net/netip"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/pods"
)

// kubernetes runs etcd and Kubernetes for a machine: a model in this process, or the real programs as processes of
// labkube. Both keep what is known of a cluster in [etcd.Cluster], for everything else that a machine does.
type kubernetes interface {
	// runEtcd runs the etcd service of a control plane: it waits for a bootstrap or a cluster to join, then runs the
	// member until the context ends.
	runEtcd(ctx context.Context)
	// runStaticPods runs a control plane's static pods once etcd is ready.
	runStaticPods(ctx context.Context)
	// runKubelet runs the kubelet, which registers the machine's node and posts its status.
	runKubelet(ctx context.Context)
	// bootstrap lets the etcd service bootstrap a cluster; the caller holds the lock.
	bootstrap()
	// recoverEtcd lets the etcd service recover a cluster from the uploaded snapshot; the caller holds the lock.
	// snapshotPath returns the file to upload it to.
	recoverEtcd(skipHash bool) error
	snapshotPath() (path string, err error)
	// databasePath returns the path of the etcd member's database; empty if there is none. The caller holds the lock.
	databasePath() string
	// withEtcd calls a function with a client of a cluster's member, authenticated as the machine: the member at the
	// address, or the machine's own if the address is invalid.
	withEtcd(ctx context.Context, e *etcd.Cluster, at netip.Addr, fn func(context.Context, controlplane.Etcd) error) error
	// drain evicts the pods of the machine's node, which Talos has cordoned.
	drain(ctx context.Context) error
	// nodePods returns the containers that run on the machine's node, without those of static pods; the caller holds the
	// lock.
	nodePods() []pods.Container
	// appProblem returns why the pods of an app in kube-system, selected by their label k8s-app, are not ready; empty if
	// they are.
	appProblem(ctx context.Context, app string, controlPlanes int) string
	// bootstrapManifests returns the manifests that Talos adds to those of the configuration; the caller holds the lock.
	bootstrapManifests() []manifests.Manifest
	// createObject creates an object of a manifest unless it exists.
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

// manifests returns Talos' bootstrap manifests and those of the configuration. The model runs Talos' own workloads
// without manifests. The caller holds the lock.
func (m *machine) manifests() []manifests.Manifest {
	return append(m.kube.bootstrapManifests(), manifests.FromConfig(m.config)...)
}

// staticPods returns the containers of this control plane's static pods while its API server runs; the caller holds the
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

// setAPIServerUp records whether the API server is ready; the caller holds the lock.
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
