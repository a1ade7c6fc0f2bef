package clustertest

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/talosops/kube"
)

// Leases are the Lease objects of a fake cluster.
type Leases struct {
	mu            sync.Mutex
	Held          kube.Lease // of a step
	Run           kube.Lease // of a run
	Maintenance   kube.Lease // of the run that has begun a maintenance
	APIErr        error      // of an API that does not respond
	LostResponses int        // number of updates that succeed, but whose response is lost
	Updates       int
}

// Lease implements kube.Interface.
func (f *Leases) Lease(_ context.Context, _ netip.Addr, name string) (kube.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return *f.named(name), f.APIErr
}

func (f *Leases) named(name string) *kube.Lease {
	switch name {
	case "talos-proxmox-run":
		return &f.Run
	case "talos-proxmox-maintenance":
		return &f.Maintenance
	default:
		return &f.Held
	}
}

// PutLease implements kube.Interface.
func (f *Leases) PutLease(_ context.Context, _ netip.Addr, l kube.Lease) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	now := f.named(l.Name)

	switch {
	case f.APIErr != nil:
		return f.APIErr
	case l.Version != now.Version:
		return errors.New("409 Conflict: the object has been modified")
	}

	f.Updates++
	*now = l
	now.Version = strconv.Itoa(f.Updates)

	if f.LostResponses > 0 {
		f.LostResponses--

		return errors.New("connection reset")
	}

	return nil
}

// Set changes the lease as another client would.
func (f *Leases) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()

	change()
}

// Take makes another holder acquire the lease of a step.
func (f *Leases) Take(holder string) { f.take(&f.Held, "talos-proxmox", holder) }

// TakeRun makes another holder acquire the lease of a run.
func (f *Leases) TakeRun(holder string) { f.take(&f.Run, "talos-proxmox-run", holder) }

// LeaveMaintenance makes a killed run have begun a maintenance.
func (f *Leases) LeaveMaintenance(run string) {
	f.take(&f.Maintenance, "talos-proxmox-maintenance", run+": maintenance")
}

func (f *Leases) take(lease *kube.Lease, name, holder string) {
	f.Set(func() {
		f.Updates++
		*lease = kube.Lease{Name: name, Version: strconv.Itoa(f.Updates)}
		lease.HolderIdentity, lease.LeaseDurationSeconds = holder, 40
		lease.AcquireTime, lease.RenewTime = metav1.Now(), metav1.Now()
	})
}
