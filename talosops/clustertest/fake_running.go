package clustertest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/backup"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// EtcdAlarms implements talosapi.API.
func (f *Fake) EtcdAlarms(context.Context, netip.Addr) ([]string, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	return f.Alarms, nil
}

// BootID implements talosapi.API.
func (f *Fake) BootID(_ context.Context, address netip.Addr) (string, error) {
	return Lookup(f, f.Boots, address, "")
}

// HasEtcdData implements talosapi.API.
func (f *Fake) HasEtcdData(_ context.Context, address netip.Addr) (bool, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	down := f.Down[address.String()]

	return !f.NoEtcdData && !f.NoEtcdDataOn[address.String()] && len(f.MemberList) > 0 && down == nil, down
}

// DryRun implements talosapi.API.
func (f *Fake) DryRun(_ context.Context, address netip.Addr, _ []byte) (talosapi.DryRunResult, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	return talosapi.DryRunResult{Effect: f.Effects[address.String()], Pending: f.PendingParts}, f.Down[address.String()]
}

// Configuration implements talosapi.API.
func (f *Fake) Configuration(_ context.Context, address netip.Addr) (active, persistent string, err error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	return f.Active[address.String()], f.Persistent[address.String()], f.Down["configuration "+address.String()]
}

// Origin implements talosapi.API.
func (*Fake) Origin(context.Context, netip.Addr, string) (backup.Origin, error) {
	return Origin(), nil
}

// Snapshot implements talosapi.API.
func (f *Fake) Snapshot(ctx context.Context, address netip.Addr, to io.Writer) error {
	f.Snapshots = append(f.Snapshots, address.String())
	if give := f.SnapshotFuncs[address.String()]; give != nil {
		return give(ctx, to)
	}

	_, err := to.Write(EtcdSnapshot("of " + address.String()))

	return err
}

// PatchNode implements kube.Interface.
func (f *Fake) PatchNode(_ context.Context, _ netip.Addr, node string, patch kube.NodePatch) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	switch {
	case f.PatchErr != nil:
		return f.PatchErr
	case f.Conflicts > 0:
		f.Conflicts--

		return kube.ErrChanged
	}

	i := slices.IndexFunc(f.NodeList, func(n kube.Node) bool { return n.Name == node })
	annotations := map[string]string{}
	maps.Copy(annotations, f.NodeList[i].Annotations)

	for key, value := range patch.Metadata.Annotations {
		action := map[string]string{cluster.CordonAnnotation: "schedulable", cluster.RestartAnnotation: "waits no more"}[key]

		delete(annotations, key)

		if value != nil {
			annotations[key] = *value
			action = map[string]string{cluster.CordonAnnotation: "cordoned", cluster.RestartAnnotation: "waits for the end of boot " + *value}[key]
		}

		f.Actions = append(f.Actions, node+" "+cmp.Or(action, "changed"))
	}

	f.NodeList[i].Annotations = annotations

	if patch.Spec != nil && patch.Spec.Unschedulable != nil {
		f.NodeList[i].Unschedulable = *patch.Spec.Unschedulable
	}

	return nil
}

// Reboot implements talosapi.API: the boot id changes after ten seconds.
func (f *Fake) Reboot(_ context.Context, address netip.Addr, _ bool) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	f.Actions = append(f.Actions, address.String()+" restarts")

	f.After(10*time.Second, func() { f.Boots[address.String()] = "second" })

	return f.RebootErr
}

// PodsOn implements kube.Interface.
func (f *Fake) PodsOn(_ context.Context, _ netip.Addr, node string) ([]kube.Pod, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	return slices.Clone(f.Pods[node]), nil
}

// Evict implements kube.Interface: the pod is gone in the next list.
func (f *Fake) Evict(_ context.Context, _ netip.Addr, p kube.Pod) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	if why := f.EvictionErrors[p.Name]; why != "" {
		return errors.New(why)
	}

	for node, pods := range f.Pods {
		f.Pods[node] = slices.DeleteFunc(slices.Clone(pods), func(other kube.Pod) bool { return other.UID == p.UID })
	}

	return nil
}

// Act records an action in Actions and executes it, unless ActionErrors has an error for its verb.
func (f *Fake) Act(action string, execute func()) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	verb, _, _ := strings.Cut(action, " ")
	if err := f.ActionErrors[verb]; err != nil {
		return err
	}

	f.Actions = append(f.Actions, action)

	execute()

	return nil
}

// ForfeitLeadership implements talosapi.API.
func (f *Fake) ForfeitLeadership(_ context.Context, address netip.Addr) error {
	return f.Act("forfeit "+address.String(), func() {})
}

// LeaveEtcd implements talosapi.API.
func (f *Fake) LeaveEtcd(_ context.Context, address netip.Addr) error {
	return f.Act("leave "+address.String(), func() {
		f.MemberList = slices.DeleteFunc(slices.Clone(f.MemberList), func(m talosapi.Member) bool {
			return slices.Contains(m.Addresses(), address)
		})
	})
}

// RemoveMember implements talosapi.API.
func (f *Fake) RemoveMember(_ context.Context, _ netip.Addr, id uint64) error {
	before := len(f.MemberList)

	err := f.Act("remove", func() {
		f.MemberList = slices.DeleteFunc(slices.Clone(f.MemberList), func(m talosapi.Member) bool { return m.ID == id })
	})
	if err == nil && len(f.MemberList) == before {
		return status.Error(codes.NotFound, "etcdserver: member not found")
	}

	return err
}

// Reset implements talosapi.API: the machine shuts down after five seconds.
func (f *Fake) Reset(_ context.Context, address netip.Addr) error {
	return f.Act("reset "+address.String(), func() {
		if !f.RespondsAfterReset {
			f.After(5*time.Second, func() { f.Down[address.String()] = errors.New("no route to host") })
		}
	})
}

// DeleteNode implements kube.Interface.
func (f *Fake) DeleteNode(_ context.Context, _ netip.Addr, n kube.Node) error {
	return f.Act("delete "+n.Name+" "+n.UID, func() {
		f.NodeList = slices.DeleteFunc(slices.Clone(f.NodeList), func(o kube.Node) bool { return o.UID == n.UID })
	})
}

// EtcdSnapshot returns a snapshot with a valid digest, but without a database.
func EtcdSnapshot(text string) []byte {
	database := bytes.Repeat([]byte(text+"\n"), 512)
	digest := sha256.Sum256(database)

	return append(database, digest[:]...)
}

// Origin returns the origin of every test cluster.
func Origin() backup.Origin {
	return backup.Origin{ID: "0123", Talos: "v1.14.4", Kubernetes: "v1.37.2"}.WithSealKey("the key of etcd's Secrets")
}

// Apply implements talosapi.API.
func (f *Fake) Apply(_ context.Context, address netip.Addr, _ []byte) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	f.Actions = append(f.Actions, address.String()+" is configured")

	return f.Down["apply "+address.String()]
}

// Try implements talosapi.API.
func (f *Fake) Try(_ context.Context, address netip.Addr, configuration []byte, period time.Duration) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	f.Actions = append(f.Actions, address.String()+" tries a configuration for "+period.String())

	key, reading := address.String(), "configuration "+address.String()
	if err := f.Down["try "+key]; err != nil {
		return err
	}

	before := f.Active[key]
	f.Active[key] = string(configuration)

	if f.TrialsLockOut {
		f.Down[reading] = status.Error(codes.Unavailable, "connection refused")

		time.AfterFunc(period, func() {
			f.Mu.Lock()
			defer f.Mu.Unlock()

			f.Active[key] = before
			delete(f.Down, reading)
		})
	}

	return nil
}

// Provision implements talosapi.API.
func (f *Fake) Provision(_ context.Context, address netip.Addr, _ *tls.Config, _ []byte) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	f.Actions = append(f.Actions, address.String()+" is configured in maintenance mode")

	return f.Down["provision "+address.String()]
}
