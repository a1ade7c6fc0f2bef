package clustertest

import (
	"context"
	"errors"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/talosops/kube"
)

// Leases is the Lease object of a fake cluster.
type Leases struct {
	mu            sync.Mutex
	Held          kube.Lease
	APIErr        error // of an API that does not respond
	LostResponses int   // number of updates that succeed, but whose response is lost
	Updates       int
}

// Lease implements kube.Interface.
func (f *Leases) Lease(context.Context, string, string) (kube.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.Held, f.APIErr
}

// PutLease implements kube.Interface.
func (f *Leases) PutLease(_ context.Context, _ string, l kube.Lease) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	switch {
	case f.APIErr != nil:
		return f.APIErr
	case l.Version != f.Held.Version:
		return errors.New("409 Conflict: the object has been modified")
	}

	f.Updates++
	f.Held = l
	f.Held.Version = strconv.Itoa(f.Updates)

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

// Take makes another holder acquire the lease.
func (f *Leases) Take(holder string) {
	f.Set(func() {
		f.Updates++
		f.Held = kube.Lease{Version: strconv.Itoa(f.Updates)}
		f.Held.HolderIdentity, f.Held.LeaseDurationSeconds = holder, 40
		f.Held.AcquireTime, f.Held.RenewTime = metav1.Now(), metav1.Now()
	})
}
