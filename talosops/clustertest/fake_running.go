package clustertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"talos-proxmox/internal/backup"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// Running is a cluster that is changed while it runs.
type Running struct {
	*Fake
	Leases

	Statuses map[string]talosapi.EtcdStatus // by address
	Alarms   []string
	Boots    map[string]string // boot ids by address
	Pods     map[string][]kube.Pod
	Budget   map[string]string          // why a pod may not leave, by its name
	Patches  []string                   // what was made of nodes
	Effects  map[string]talosapi.Effect // of applying a configuration, by address
	Left     []string                   // what a configuration would leave to a restart
	Answer   error                      // to a restart, which takes place
	Empty    bool                       // no control plane holds data of etcd
	Conflict int                        // how many changes of nodes meet one of someone else

	Active, Persistent map[string]string                                 // configurations by address
	Gives              map[string]func(context.Context, io.Writer) error // a snapshot by address; none = a whole one
	Snapshots          []string                                          // addresses that were asked for one
}

// EtcdStatus implements talosapi.API.
func (f *Running) EtcdStatus(_ context.Context, address string) (talosapi.EtcdStatus, error) {
	return At(f.Fake, f.Statuses, address, "etcd ")
}

// EtcdAlarms implements talosapi.API.
func (f *Running) EtcdAlarms(context.Context, string) ([]string, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	return f.Alarms, nil
}

// BootID implements talosapi.API.
func (f *Running) BootID(_ context.Context, address string) (string, error) {
	return At(f.Fake, f.Boots, address, "")
}

// HoldsEtcd implements talosapi.API.
func (f *Running) HoldsEtcd(_ context.Context, address string) (bool, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	return !f.Empty && len(f.MemberList) > 0 && f.Down[address] == nil, f.Down[address]
}

// Rehearse implements talosapi.API.
func (f *Running) Rehearse(_ context.Context, address string, _ []byte) (talosapi.Rehearsal, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	return talosapi.Rehearsal{Effect: f.Effects[address], Pending: f.Left}, f.Down[address]
}

// Configuration implements talosapi.API.
func (f *Running) Configuration(_ context.Context, address string) (active, persistent string, err error) {
	return f.Active[address], f.Persistent[address], f.Down["configuration "+address]
}

// Origin implements talosapi.API.
func (*Running) Origin(context.Context, string, string) (backup.Origin, error) {
	return Origin(), nil
}

// Snapshot implements talosapi.API.
func (f *Running) Snapshot(ctx context.Context, address string, to io.Writer) error {
	f.Snapshots = append(f.Snapshots, address)
	if give := f.Gives[address]; give != nil {
		return give(ctx, to)
	}

	_, err := to.Write(EtcdSnapshot("of " + address))

	return err
}

// Nodes returns copies, as an API does.
func (f *Running) Nodes(ctx context.Context, address string) ([]kube.Node, error) {
	nodes, err := f.Fake.Nodes(ctx, address)

	return slices.Clone(nodes), err
}

// PatchNode implements kube.Interface.
func (f *Running) PatchNode(_ context.Context, _, node string, patch kube.NodePatch) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	if f.Conflict > 0 {
		f.Conflict--

		return kube.ErrChanged
	}

	i := slices.IndexFunc(f.NodeList, func(n kube.Node) bool { return n.Name == node })
	annotations := map[string]string{}
	maps.Copy(annotations, f.NodeList[i].Annotations)

	for key, value := range patch.Metadata.Annotations {
		said := map[string]string{cluster.CordonAnnotation: "schedulable", cluster.RestartAnnotation: "waits no more"}[key]

		delete(annotations, key)

		if value != nil {
			annotations[key] = *value
			said = map[string]string{cluster.CordonAnnotation: "cordoned", cluster.RestartAnnotation: "waits for the end of boot " + *value}[key]
		}

		f.Patches = append(f.Patches, node+" "+said)
	}

	f.NodeList[i].Annotations = annotations

	if patch.Spec != nil {
		f.NodeList[i].Unschedulable = *patch.Spec.Unschedulable
	}

	return nil
}

// Reboot has a machine boot again in a while.
func (f *Running) Reboot(_ context.Context, address string, _ bool) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	f.Patches = append(f.Patches, address+" restarts")

	f.After(10*time.Second, func() { f.Boots[address] = "second" })

	return f.Answer
}

// PodsOn implements kube.Interface.
func (f *Running) PodsOn(_ context.Context, _, node string) ([]kube.Pod, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	return slices.Clone(f.Pods[node]), nil
}

// Evict lets a pod go at the next look.
func (f *Running) Evict(_ context.Context, _ string, p kube.Pod) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	if why := f.Budget[p.Name]; why != "" {
		return errors.New(why)
	}

	for node, pods := range f.Pods {
		f.Pods[node] = slices.DeleteFunc(slices.Clone(pods), func(other kube.Pod) bool { return other.UID == p.UID })
	}

	return nil
}

// EtcdSnapshot is a whole snapshot of etcd, as far as its digest tells.
func EtcdSnapshot(text string) []byte {
	database := bytes.Repeat([]byte(text+"\n"), 512)
	digest := sha256.Sum256(database)

	return append(database, digest[:]...)
}

// Origin is that of every cluster of these tests.
func Origin() backup.Origin {
	return backup.Origin{ID: "0123", Talos: "v1.14.4", Kubernetes: "v1.37.2"}.SealedBy("the key of etcd's Secrets")
}
