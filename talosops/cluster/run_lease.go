package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// runLeaseTimeout is how long a run tries to read the lease if no Kubernetes API answers.
const runLeaseTimeout = 90 * time.Second

// Run is the work of a run, and returns how it ended.
type Run func(context.Context) (request.RunOutcome, error)

// WithRunLease calls do while no other run works on the cluster, and ends the maintenance that the run has begun. It
// connects with the first of the clients that the control planes accept. If the lease cannot be read, do runs
// nevertheless: the run may be what repairs the cluster.
func (c *Cluster) WithRunLease(ctx context.Context, purpose string, do Run, clients ...talosapi.API) error {
	var problems []error

	for _, client := range clients {
		viaClient := *c
		viaClient.Talos = client

		reconnect := func(ctx context.Context) (*Cluster, error) { return viaClient.Connect(ctx, c.ControlPlanes) }

		connected, err := reconnect(ctx)
		if err == nil {
			return connected.withRunLease(ctx, purpose, reconnect, do)
		}

		problems = append(problems, err)
	}

	return c.runWithoutLease(ctx, errors.Join(problems...), do)
}

func (c *Cluster) runWithoutLease(ctx context.Context, why error, do Run) error {
	c.Print(fmt.Sprintf("cannot tell whether another run works on the cluster: %v", why))

	_, err := do(ctx)

	return err
}

func (c *Cluster) withRunLease(
	ctx context.Context, purpose string, reconnect func(context.Context) (*Cluster, error), do Run,
) error {
	h := c.newLeaseHolder(runLeaseName, purpose)
	h.reconnect, h.steps = reconnect, c.newLeaseHolder(leaseName, purpose)

	err := h.acquire(ctx, min(runLeaseTimeout, c.Timeout))

	switch {
	case err == nil: // an interrupt ends do, and the lease is held until the maintenance has ended
		return h.whileHeld(context.WithoutCancel(ctx), func(held context.Context) error {
			working, end := context.WithCancel(held)
			defer end()
			defer context.AfterFunc(ctx, end)()

			return h.runWithMaintenance(working, c, do)
		})
	case h.holder == "" && ctx.Err() == nil:
		return c.runWithoutLease(ctx, err, do)
	default:
		return err
	}
}

// runWithMaintenance calls do, after the end of a maintenance that a killed run has left, and ends the one that this
// run has begun, once none of its steps is at work any more.
func (h *leaseHolder) runWithMaintenance(ctx context.Context, c *Cluster, do Run) error {
	if err := h.steps.awaitFree(ctx); err != nil {
		return err
	}

	run := h.own.HolderIdentity

	if c.Maintenance.HasCommands() {
		if err := c.endInterrupted(ctx, run); err != nil {
			c.Print("warning: " + err.Error())
		}
	}

	outcome, err := do(ctx)
	if !c.Maintenance.HasCommands() {
		return err
	}

	ending := context.WithoutCancel(ctx)
	if h.reconnect != nil { // the run may have replaced an authority
		if connected, err := h.reconnect(ending); err == nil {
			c, h.steps.Cluster = connected, connected
		}
	}

	begun, markErr := c.hasBegun(ending, run)
	if markErr != nil || !begun {
		return errors.Join(err, markErr)
	}

	return errors.Join(err, h.steps.awaitFree(ending), c.endMaintenance(ending, run, outcome))
}

// observe notes who holds the lease, and since when it has not changed.
func (h *leaseHolder) observe(ctx context.Context) {
	now, _, err := h.readLease(ctx)
	if err != nil {
		h.observedAt = time.Time{}

		return
	}

	h.heldByOther(now)
}

// awaitFree waits until nobody holds the lease. One of a holder that has ended is released, so that the next step need
// not wait again until that is certain.
func (h *leaseHolder) awaitFree(ctx context.Context) error {
	return h.Within(ctx, h.Timeout, h.freeGoal(), func(ctx context.Context) checks.Report {
		f := checks.Finding{Node: kube.LeaseNamespace + "/" + h.own.Name, Check: "lease"}

		now, address, err := h.readLease(ctx)

		switch {
		case err != nil:
			h.observedAt = time.Time{} // it may have been renewed unnoticed
			f.Problem, f.Detail = "no Kubernetes API says who changes the cluster", err.Error()

			return checks.Report{f}
		case h.heldByOther(now):
			f.Problem = describeHolder(now)

			return checks.Report{f}
		case now.HolderIdentity == "":
			return nil
		}

		now.HolderIdentity = ""
		if err := h.Kubernetes.PutLease(ctx, address, now); err != nil {
			f.Problem, f.Detail = "is held by a process that has ended, and cannot be released", err.Error()

			return checks.Report{f}
		}

		return nil
	})
}

// findRun finds the run that this step belongs to, which has to hold the cluster still. Without one (the cluster did
// not answer when the run began; `pulumi destroy` of some machines), the lease of the step suffices. A run of another
// computer that does not renew its lease was killed, and holds nothing.
func (h *leaseHolder) findRun(ctx context.Context) error {
	goal := checks.Goal{
		Before: "it was known which run holds the cluster", Missed: "it is not known which run holds the cluster",
		Remedy: "repair etcd and the API servers",
	}

	var run kube.Lease

	err := h.Until(ctx, goal, func(ctx context.Context) checks.Report {
		var err error
		if run, _, err = h.fetchLease(ctx, runLeaseName); err != nil {
			return checks.Problem(kube.LeaseNamespace+"/"+runLeaseName, "lease", "cannot be read", err.Error())
		}

		return nil
	})

	switch {
	case err != nil || run.HolderIdentity == "":
		return err
	case !isOfThisComputer(run.HolderIdentity):
		other, err := h.RunHolder(ctx)
		if other != "" {
			err = fmt.Errorf("another run holds the cluster, so nothing was changed: %s. Wait for its end, then run the same again",
				other)
		}

		return err
	default:
		h.mu.Lock()
		h.run = run.HolderIdentity
		h.mu.Unlock()

		return checkRun(run, run.HolderIdentity)
	}
}

// verifyRun returns an error if the run of this step has lost its lease.
func (h *leaseHolder) verifyRun(ctx context.Context) error {
	h.mu.Lock()
	run := h.run
	h.mu.Unlock()

	if run == "" {
		return nil
	}

	now, _, err := h.fetchLease(ctx, runLeaseName)
	if err != nil {
		return err
	}

	return checkRun(now, run)
}

// checkRun compares the lease of a run with its holder at first. An empty holder is that of a run that has ended.
func checkRun(now kube.Lease, run string) error {
	reason := ""

	switch {
	case now.Version == "":
		reason = "someone deleted its lease " + kube.LeaseNamespace + "/" + runLeaseName
	case now.HolderIdentity != "" && now.HolderIdentity != run:
		reason = now.HolderIdentity + " holds it"
	case isDead(now.HolderIdentity):
		reason = now.HolderIdentity + " has ended"
	default:
		return nil
	}

	return fmt.Errorf("%w: its run no longer holds the cluster, and another one may begin (%s): `pulumi up` resumes; before "+
		"a `pulumi destroy` of some machines, kubectl -n %s delete lease %s", errLeaseLost, reason, kube.LeaseNamespace, runLeaseName)
}
