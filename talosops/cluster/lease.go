package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
)

// Timing of a lease: a holder renews it and stops its work before it expires. Others take it over once it has not
// changed for its duration. They compare versions and use only their own clocks, so that clocks may differ. A holder
// that was a process of this computer and has ended is not waited for.
const (
	leaseDuration      = 40 * time.Second
	leaseRenewDeadline = 30 * time.Second
	leaseRenewInterval = 10 * time.Second
)

// leaseName is held while a machine, or what all machines share, is changed; runLeaseName by a whole run. They are two
// because commands of a run do not know the run: a deletion executes what the state has, without the program.
const (
	leaseName    = "talos-proxmox"
	runLeaseName = "talos-proxmox-run"
)

var errLeaseLost = errors.New("the lease of the cluster is lost, so the work was stopped")

// leaseHolder acquires, renews and releases a Lease.
type leaseHolder struct {
	*Cluster

	own       kube.Lease // as last written, or as last tried
	renewedAt time.Time  // when own was renewed last
	// reconnect creates new clients when no API accepts the current ones: a run may replace their authority. May be nil.
	reconnect func(context.Context) (*Cluster, error)

	observed   kube.Lease // somebody else's lease, as last read
	observedAt time.Time  // when observed changed last
	holder     string     // who holds it; empty = nobody is known to

	steps *leaseHolder // of a run: the lease of its steps, which is observed at the same time

	mu          sync.Mutex // of the following, which a step sets while its lease is being renewed
	run         string     // the identity of the run that this is a step of; empty = there was none
	lastAddress netip.Addr // control plane that answered last
}

// WithLease calls do while this process holds the Lease kube-system/talos-proxmox, which serializes changes of a
// cluster. It waits for other holders, for each of them up to the request's timeout. Losing the lease cancels do's
// context, and so does the loss of the run's lease, which may let another run begin.
func (c *Cluster) WithLease(ctx context.Context, purpose string, do func(ctx context.Context) error) error {
	h := c.newLeaseHolder(leaseName, purpose)
	if err := h.acquire(ctx, c.Timeout); err != nil {
		return err
	}

	return h.whileHeld(ctx, func(ctx context.Context) error {
		if err := h.findRun(ctx); err != nil {
			return err
		}

		run := cmp.Or(h.run, h.own.HolderIdentity)
		err := do(context.WithValue(ctx, runKey{}, run))
		h.endStep(ctx, run, err)

		return err
	})
}

func (c *Cluster) newLeaseHolder(lease, purpose string) *leaseHolder {
	h := &leaseHolder{Cluster: c, own: kube.Lease{Name: lease}}
	h.own.HolderIdentity, h.own.LeaseDurationSeconds = holderIdentity(purpose), int(leaseDuration.Seconds())

	return h
}

// whileHeld calls do while the lease is held, and then releases it.
func (h *leaseHolder) whileHeld(ctx context.Context, do func(ctx context.Context) error) error {
	working, end := context.WithCancelCause(ctx)
	renewing := make(chan struct{})

	go func() {
		defer close(renewing)

		h.keepRenewing(working, end)
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

// acquire waits until the lease is acquired. It gives up after unreachableTimeout if no API answers.
func (h *leaseHolder) acquire(ctx context.Context, unreachableTimeout time.Duration) error {
	writable := checks.Goal{
		Before: "the cluster's lease was taken", Missed: "the cluster cannot be changed: its lease cannot be taken",
		Remedy: "repair etcd and the API servers",
	}

	for {
		waitedFor, g, timeout := h.holder, writable, unreachableTimeout
		if waitedFor != "" {
			g, timeout = h.freeGoal(), h.Timeout
		}

		var done bool

		err := h.Within(ctx, timeout, g, func(ctx context.Context) checks.Report {
			var f checks.Finding

			f, done = h.tryAcquire(ctx)
			f.Node, f.Check = kube.LeaseNamespace+"/"+h.own.Name, "lease"

			if done || h.holder != waitedFor {
				return nil
			}

			return checks.Report{f}
		})
		if err != nil || done {
			return err
		}
	}
}

func (h *leaseHolder) freeGoal() checks.Goal {
	return checks.Goal{
		Before: "the cluster was free to change", Missed: "another operator is changing the cluster",
		Remedy: "wait for them; if they are gone, break the lease with kubectl -n " + kube.LeaseNamespace + " delete lease " +
			h.own.Name,
	}
}

// tryAcquire acquires the lease if nobody holds it.
func (h *leaseHolder) tryAcquire(ctx context.Context) (checks.Finding, bool) {
	now, address, err := h.readLease(ctx)
	if err != nil {
		h.observedAt = time.Time{} // it may have been renewed unnoticed

		return checks.Finding{Problem: "no Kubernetes API says who changes the cluster", Detail: err.Error()}, false
	}

	h.holder = ""

	if h.heldByOther(now) {
		h.holder = now.HolderIdentity
		if h.steps != nil {
			h.steps.observe(ctx)
		}

		return checks.Finding{Problem: describeHolder(now)}, false
	}

	if !now.SameHolder(h.own) {
		h.own.AcquireTime.Time = time.Now().Truncate(time.Microsecond)
	}

	began := time.Now()

	h.own.LeaderTransitions = now.LeaderTransitions + 1
	if err := h.write(ctx, address, now.Version); err != nil {
		return checks.Finding{Problem: "cannot be taken", Detail: err.Error()}, false
	}

	h.renewedAt = began

	return checks.Finding{}, true
}

func describeHolder(l kube.Lease) string {
	return fmt.Sprintf("%s since %s, renewed at %s",
		l.HolderIdentity, l.AcquireTime.UTC().Format(time.RFC3339), l.RenewTime.UTC().Format(time.TimeOnly))
}

// heldByOther reports whether somebody else holds the lease and may be alive.
func (h *leaseHolder) heldByOther(now kube.Lease) bool {
	if now.Version != h.observed.Version || h.observedAt.IsZero() {
		h.observedAt = time.Now()
	}

	h.observed = now

	duration := time.Duration(now.LeaseDurationSeconds) * time.Second

	return now.HolderIdentity != "" && !now.SameHolder(h.own) && time.Since(h.observedAt) < duration &&
		!isDead(now.HolderIdentity)
}

// keepRenewing renews the lease until ctx ends; if that fails, it calls end.
func (h *leaseHolder) keepRenewing(ctx context.Context, end context.CancelCauseFunc) {
	for pause := leaseRenewInterval; checks.Pause(ctx, pause) == nil; {
		err := h.renew(ctx)
		if err == nil {
			err = h.verifyRun(ctx)
		}

		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errLeaseLost):
			end(err)

			return
		case err != nil && h.canExpire() && time.Since(h.renewedAt) >= leaseRenewDeadline:
			end(fmt.Errorf("%w: it could not be renewed for %s: %w", errLeaseLost, leaseRenewDeadline, err))

			return
		}

		pause = leaseRenewInterval
		if err != nil {
			pause = min(h.Interval, leaseRenewInterval)
		}
	}
}

// canExpire reports whether the work must stop if the lease cannot be renewed. With a single control plane, nobody else
// can acquire a lease while the API restarts. A run changes more than the cluster, and holds the other lease whenever
// it changes that.
func (h *leaseHolder) canExpire() bool { return len(h.ControlPlanes) > 1 && h.own.Name != runLeaseName }

func (h *leaseHolder) renew(ctx context.Context) error {
	if h.canExpire() {
		limited, cancel := context.WithDeadline(ctx, h.renewedAt.Add(leaseRenewDeadline))
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
	case !now.SameHolder(h.own):
		return fmt.Errorf("%w: it is held by %s", errLeaseLost, cmp.Or(now.HolderIdentity, "no one"))
	}

	if err := h.write(ctx, address, now.Version); err != nil {
		return err
	}

	h.renewedAt = began

	return nil
}

// release lets the next holder begin at once, also after an interrupt.
func (h *leaseHolder) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checks.CallTimeout)
	defer cancel()

	now, address, err := h.readLease(ctx)
	if err == nil && now.SameHolder(h.own) {
		h.own.HolderIdentity = ""
		err = h.write(ctx, address, now.Version)
	}

	if err != nil {
		h.Print(fmt.Sprintf("the lease %s/%s could not be released, and expires in %s: %v",
			kube.LeaseNamespace, h.own.Name, leaseDuration, err))
	}
}

// write replaces the lease that was read with own.
func (h *leaseHolder) write(ctx context.Context, address netip.Addr, version string) error {
	h.own.Version, h.own.RenewTime.Time = version, time.Now().Truncate(time.Microsecond)

	return h.Kubernetes.PutLease(ctx, address, h.own)
}

// readLease returns the lease, and the address of the control plane that returned it.
func (h *leaseHolder) readLease(ctx context.Context) (now kube.Lease, address netip.Addr, err error) {
	now, address, err = h.fetchLease(ctx, h.own.Name)
	if err == nil || h.reconnect == nil {
		return now, address, err
	}

	reconnected, connectErr := h.reconnect(ctx)
	if connectErr != nil {
		return now, address, err
	}

	h.Cluster = reconnected

	return h.fetchLease(ctx, h.own.Name)
}

// fetchLease asks the control planes, beginning with the one that answered last.
func (h *leaseHolder) fetchLease(ctx context.Context, name string) (now kube.Lease, address netip.Addr, err error) {
	h.mu.Lock()
	last := h.lastAddress
	h.mu.Unlock()

	inOrder := slices.Clone(h.ControlPlanes)
	if i := slices.IndexFunc(inOrder, func(n request.Node) bool { return n.Address == last }); i > 0 {
		inOrder = slices.Insert(slices.Delete(inOrder, i, i+1), 0, h.ControlPlanes[i])
	}

	now, address, err = FirstAnswer(inOrder, func(address netip.Addr) (kube.Lease, error) {
		return h.Kubernetes.Lease(ctx, address, name)
	})
	if err == nil {
		h.mu.Lock()
		h.lastAddress = address
		h.mu.Unlock()
	}

	return now, address, err
}
