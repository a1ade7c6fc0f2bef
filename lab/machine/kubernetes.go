package machine

import (
	"context"
	"net/netip"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/pods"
)

// kubernetes is how etcd and Kubernetes run on a machine: their model in this process, or the real ones as processes of
// labkube. What is known of a cluster is kept in [etcd.Cluster] by both, for everything else that a machine does.
type kubernetes interface {
	// runEtcd is the etcd service of a control plane: it waits for a bootstrap or for a cluster to join, then runs the
	// member until the context ends.
	runEtcd(ctx context.Context)
	// runServers runs a control plane's static pods once etcd serves.
	runServers(ctx context.Context)
	// runKubelet registers the machine's node and speaks for it.
	runKubelet(ctx context.Context)
	// bootstrap lets the etcd service begin a cluster; the caller holds the lock.
	bootstrap()
	// recoverEtcd lets it begin a cluster from the uploaded snapshot, which awaits where it is to be written to; the
	// caller holds the lock.
	recoverEtcd(skipHash bool) error
	awaitSnapshot() (path string, err error)
	// database is where the etcd member's database lies; empty = there is none to read. The caller holds the lock.
	database() string
	// askEtcd asks a member of a cluster with the machine's right to it: the one at the address, or the machine's own
	// where that is invalid.
	askEtcd(ctx context.Context, e *etcd.Cluster, at netip.Addr, ask func(context.Context, controlplane.Etcd) error) error
	// drain evicts the pods of the machine's node, which Talos has cordoned.
	drain(ctx context.Context) error
	// nodePods are the containers that run on the machine's node, but those of static pods; the caller holds the lock.
	nodePods(e *etcd.Cluster) []pods.Container
	// appProblem is what the pods of an app in kube-system miss, by their label k8s-app; empty where they run.
	appProblem(ctx context.Context, app string, controlPlanes int) string
	// ownManifests are those that Talos adds to the configuration's; the caller holds the lock.
	ownManifests() []manifests.Manifest
	// createObject creates an object of a manifest; what exists stays as it is.
	createObject(ctx context.Context, content map[string]any) error
}

// modelKubernetes runs the model.
type modelKubernetes struct{ *machine }

var _ kubernetes = modelKubernetes{}

// drain implements kubernetes: the model's pods belong to DaemonSets, which a drain leaves.
func (modelKubernetes) drain(context.Context) error { return nil }
