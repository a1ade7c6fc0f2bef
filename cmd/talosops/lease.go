package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"
)

// What a lease takes: a holder renews it, gives its work up before it expires, and whoever waits takes it over when it
// has stayed as it is for its duration. Only the time between two looks counts, so that clocks may differ.
const (
	leaseDuration = 40 * time.Second
	leaseLost     = 30 * time.Second
	leaseRenewal  = 10 * time.Second
)

const (
	leaseNamespace = "kube-system"
	leaseName      = "talos-proxmox"
	breakLease     = "kubectl -n " + leaseNamespace + " delete lease " + leaseName
)

// errLeaseLost says that someone else may change the cluster now.
var errLeaseLost = errors.New("the lease of the cluster is lost, so that the work was given up")

// kubeLease is the Lease object that says who changes the cluster.
type kubeLease struct {
	Version           string // of the object; empty = there is none
	Holder            string // empty = no one
	Acquired, Renewed time.Time
	Duration          time.Duration
	Transitions       int
}

// is says whether it is the same holding: one process does not hold twice at the same moment.
func (l kubeLease) is(other kubeLease) bool {
	return l.Holder != "" && l.Holder == other.Holder && l.Acquired.Equal(other.Acquired)
}

// holding is one operator's turn to change a cluster.
type holding struct {
	*cluster

	mine  kubeLease // as it was written last, or tried to
	since time.Time // when mine was renewed last

	seen      kubeLease // someone else's
	unchanged time.Time // since when
	waitsFor  string    // who holds it; empty = no one is known to
}

// hold does something to a cluster while no one else does: the Lease kube-system/talos-proxmox says who is at work. It
// waits for whoever holds it, each holder for the request's timeout at most. The work's context ends where the lease is
// lost.
func (c *cluster) hold(ctx context.Context, what string, do func(ctx context.Context) error) error {
	h := &holding{cluster: c, mine: kubeLease{Holder: operator(what)}}
	if err := h.acquire(ctx); err != nil {
		return err
	}

	working, end := context.WithCancelCause(ctx)
	renewing := make(chan struct{})

	go func() {
		defer close(renewing)

		h.keep(working, end)
	}()

	defer func() {
		end(nil)
		<-renewing
		h.release(ctx)
	}()

	err := do(working)
	if lost := context.Cause(working); err != nil && errors.Is(lost, errLeaseLost) {
		return errors.Join(lost, err)
	}

	return err
}

// operator is who holds a lease, for people.
func operator(what string) string {
	name := fmt.Sprintf("uid %d", os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}

	host, _ := os.Hostname()

	return fmt.Sprintf("%s@%s (process %d) %s", name, cmp.Or(host, "unknown"), os.Getpid(), what)
}

// acquire waits until the lease is this operator's.
func (h *holding) acquire(ctx context.Context) error {
	free := goal{
		before: "the cluster was free to change", missed: "someone else changes the cluster",
		remedy: "wait for them; if they are gone, break the lease with " + breakLease,
	}
	writable := goal{
		before: "the cluster's lease was taken", missed: "the cluster cannot be changed: its lease cannot be taken",
		remedy: "repair etcd and the API servers",
	}

	for {
		waited, g := h.waitsFor, writable
		if waited != "" {
			g = free
		}

		var done bool

		err := h.until(ctx, g, func(ctx context.Context) (report, bool) {
			var f finding

			f, done = h.try(ctx)
			f.node, f.check = leaseNamespace+"/"+leaseName, "lease"

			return report{f}, done || h.waitsFor != waited
		})
		if err != nil || done {
			return err
		}
	}
}

// try takes the lease if no one has it.
func (h *holding) try(ctx context.Context) (finding, bool) {
	now, address, err := h.readLease(ctx)
	if err != nil {
		h.unchanged = time.Time{} // unseen, it may have been renewed

		return finding{problem: "no Kubernetes API says who changes the cluster", detail: err.Error()}, false
	}

	h.waitsFor = ""

	if h.taken(now) {
		h.waitsFor = now.Holder
		since, renewed := now.Acquired.UTC().Format(time.RFC3339), now.Renewed.UTC().Format(time.TimeOnly)

		return finding{problem: fmt.Sprintf("%s since %s, renewed at %s", now.Holder, since, renewed)}, false
	}

	if !now.is(h.mine) {
		h.mine.Acquired = time.Now().Truncate(time.Microsecond)
	}

	began := time.Now()

	h.mine.Transitions = now.Transitions + 1
	if err := h.write(ctx, address, now.Version); err != nil {
		return finding{problem: "cannot be taken", detail: err.Error()}, false
	}

	h.since = began

	return finding{}, true
}

// taken says whether someone else holds a lease and may be alive.
func (h *holding) taken(now kubeLease) bool {
	if now.Version != h.seen.Version || h.unchanged.IsZero() {
		h.unchanged = time.Now()
	}

	h.seen = now

	return now.Holder != "" && !now.is(h.mine) && time.Since(h.unchanged) < now.Duration
}

// keep renews the lease until the work ends, or ends it. Where a cluster has one control plane, no one can take over
// what cannot be read while it restarts.
func (h *holding) keep(ctx context.Context, end context.CancelCauseFunc) {
	for pause := leaseRenewal; ; {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
		}

		err := h.renew(ctx)

		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errLeaseLost):
			end(err)

			return
		case err != nil && len(h.controlPlanes) > 1 && time.Since(h.since) >= leaseLost:
			end(fmt.Errorf("%w: it could not be renewed for %s: %w", errLeaseLost, leaseLost, err))

			return
		}

		pause = leaseRenewal
		if err != nil {
			pause = min(h.interval, leaseRenewal)
		}
	}
}

func (h *holding) renew(ctx context.Context) error {
	if len(h.controlPlanes) > 1 {
		limited, cancel := context.WithDeadline(ctx, h.since.Add(leaseLost))
		defer cancel()

		ctx = limited
	}

	began := time.Now()

	now, address, err := h.readLease(ctx)
	switch {
	case err != nil:
		return err
	case now.Version == "":
		return fmt.Errorf("%w: someone deleted it", errLeaseLost)
	case !now.is(h.mine):
		return fmt.Errorf("%w: it is held by %s", errLeaseLost, cmp.Or(now.Holder, "no one"))
	}

	if err := h.write(ctx, address, now.Version); err != nil {
		return err
	}

	h.since = began

	return nil
}

// release lets the next one begin at once, also after an interrupt.
func (h *holding) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()

	now, address, err := h.readLease(ctx)
	if err == nil && now.is(h.mine) {
		h.mine.Holder = ""
		err = h.write(ctx, address, now.Version)
	}

	if err != nil {
		h.print(fmt.Sprintf("the lease %s/%s could not be released, and expires in %s: %v",
			leaseNamespace, leaseName, leaseDuration, err))
	}
}

// write writes this operator's lease in place of the one that was read.
func (h *holding) write(ctx context.Context, address, version string) error {
	h.mine.Version, h.mine.Renewed, h.mine.Duration = version, time.Now().Truncate(time.Microsecond), leaseDuration
	_, err := call(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.kubernetes.putLease(ctx, address, h.mine)
	})

	return err
}

// readLease asks the first control plane that answers, and returns its address, too.
func (h *holding) readLease(ctx context.Context) (now kubeLease, address string, err error) {
	for _, n := range h.controlPlanes {
		now, err = call(ctx, func(ctx context.Context) (kubeLease, error) { return h.kubernetes.lease(ctx, n.Address) })
		if err == nil {
			return now, n.Address, nil
		}
	}

	return kubeLease{}, "", err
}
