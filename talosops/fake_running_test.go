package main

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
)

// fakeRunning is a cluster that is changed while it runs.
type fakeRunning struct {
	*fakeCluster
	fakeLease

	statuses map[string]etcdStatus // by address
	alarms   []string
	boots    map[string]string // boot ids by address
	pods     map[string][]kubePod
	budget   map[string]string // why a pod may not leave, by its name
	patches  []string          // what was made of nodes
	effects  map[string]effect // of applying a configuration, by address
	left     []string          // what a configuration would leave to a restart
	answer   error             // to a restart, which takes place
	empty    bool              // no control plane holds data of etcd
	conflict int               // how many changes of nodes meet one of someone else

	active, persistent map[string]string                                 // configurations by address
	gives              map[string]func(context.Context, io.Writer) error // a snapshot by address; none = a whole one
	snapshots          []string                                          // addresses that were asked for one
}

func (f *fakeRunning) etcdStatus(_ context.Context, address string) (etcdStatus, error) {
	return at(f.fakeCluster, f.statuses, address, "etcd ")
}

func (f *fakeRunning) etcdAlarms(context.Context, string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.alarms, nil
}

func (f *fakeRunning) bootID(_ context.Context, address string) (string, error) {
	return at(f.fakeCluster, f.boots, address, "")
}

func (f *fakeRunning) holdsEtcd(_ context.Context, address string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return !f.empty && len(f.membersL) > 0 && f.down[address] == nil, f.down[address]
}

func (f *fakeRunning) rehearse(_ context.Context, address string, _ []byte) (rehearsal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return rehearsal{effect: f.effects[address], pending: f.left}, f.down[address]
}

func (f *fakeRunning) configuration(_ context.Context, address string) (active, persistent string, err error) {
	return f.active[address], f.persistent[address], f.down["configuration "+address]
}

func (*fakeRunning) origin(context.Context, string, string) (backup.Origin, error) {
	return testOrigin(), nil
}

func (f *fakeRunning) snapshot(ctx context.Context, address string, to io.Writer) error {
	f.snapshots = append(f.snapshots, address)
	if give := f.gives[address]; give != nil {
		return give(ctx, to)
	}

	_, err := to.Write(etcdSnapshot("of " + address))

	return err
}

// nodes returns copies, as an API does.
func (f *fakeRunning) nodes(ctx context.Context, address string) ([]kubeNode, error) {
	nodes, err := f.fakeCluster.nodes(ctx, address)

	return slices.Clone(nodes), err
}

func (f *fakeRunning) patchNode(_ context.Context, _, node string, patch nodePatch) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.conflict > 0 {
		f.conflict--

		return errChanged
	}

	i := slices.IndexFunc(f.nodesL, func(n kubeNode) bool { return n.Name == node })
	annotations := map[string]string{}
	maps.Copy(annotations, f.nodesL[i].Annotations)

	for key, value := range patch.Metadata.Annotations {
		said := map[string]string{cordonAnnotation: "schedulable", restartAnnotation: "waits no more"}[key]

		delete(annotations, key)

		if value != nil {
			annotations[key] = *value
			said = map[string]string{cordonAnnotation: "cordoned", restartAnnotation: "waits for the end of boot " + *value}[key]
		}

		f.patches = append(f.patches, node+" "+said)
	}

	f.nodesL[i].Annotations = annotations

	if patch.Spec != nil {
		f.nodesL[i].Unschedulable = *patch.Spec.Unschedulable
	}

	return nil
}

// reboot has a machine boot again in a while.
func (f *fakeRunning) reboot(_ context.Context, address string, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.patches = append(f.patches, address+" restarts")

	f.after(10*time.Second, func() { f.boots[address] = "second" })

	return f.answer
}

func (f *fakeRunning) podsOn(_ context.Context, _, node string) ([]kubePod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.Clone(f.pods[node]), nil
}

// evict lets a pod go at the next look.
func (f *fakeRunning) evict(_ context.Context, _ string, p kubePod) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if why := f.budget[p.Name]; why != "" {
		return errors.New(why)
	}

	for node, pods := range f.pods {
		f.pods[node] = slices.DeleteFunc(slices.Clone(pods), func(other kubePod) bool { return other.UID == p.UID })
	}

	return nil
}

// etcdSnapshot is a whole snapshot of etcd, as far as its digest tells.
func etcdSnapshot(text string) []byte {
	database := bytes.Repeat([]byte(text+"\n"), 512)
	digest := sha256.Sum256(database)

	return append(database, digest[:]...)
}

// testOrigin is that of every cluster of these tests.
func testOrigin() backup.Origin {
	return backup.Origin{ID: "0123", Talos: "v1.14.4", Kubernetes: "v1.37.2"}.SealedBy("the key of etcd's Secrets")
}
