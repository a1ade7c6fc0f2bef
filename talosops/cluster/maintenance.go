package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
)

const (
	// maintenanceLeaseName is held by the run that has begun the cluster's maintenance, from the command before it to the
	// command after it. It is not renewed, so that one of a killed run is found by the next run.
	maintenanceLeaseName = "talos-proxmox-maintenance"
	maintenanceCheck     = "maintenance"
	// maintenanceTimeout bounds one of its commands.
	maintenanceTimeout = 5 * time.Minute
)

// maintenanceState is how far the maintenance of a run is.
type maintenanceState string

// The states: the command before it has begun; it has failed, so that nothing was changed; a change has failed.
const (
	maintenanceBegun   maintenanceState = "maintenance"
	maintenanceRefused maintenanceState = "maintenance refused"
	maintenanceFailed  maintenanceState = "maintenance failed"
)

// mark is what the Lease of maintenance says; no run = there is none.
type mark struct {
	run   string // the identity of the run, or of a step without one
	state maintenanceState
}

const markSeparator = ": "

func parseMark(identity string) mark {
	at := max(strings.LastIndex(identity, markSeparator), 0)

	return mark{run: identity[:at], state: maintenanceState(strings.TrimPrefix(identity[at:], markSeparator))}
}

func (m mark) String() string {
	if m.run == "" {
		return ""
	}

	return m.run + markSeparator + string(m.state)
}

// runKey is the key of the run's identity in the context of [Cluster.WithLease].
type runKey struct{}

// Interruption is what is about to interrupt machines.
type Interruption struct {
	Operation request.Operation
	Nodes     []string
	// Dead: nothing runs on them that could be interrupted, so that a failing command does not hold that up.
	Dead bool
}

// BeginMaintenance runs the command before a maintenance, if this run has not done so yet. If that fails, the error
// begins with the subject, which is what is not done: one-cp-1 is not restarted. It is called while the cluster's lease
// is held; without it, which is a forced change, no command runs.
func (c *Cluster) BeginMaintenance(ctx context.Context, subject string, of Interruption) error {
	run, isHeld := ctx.Value(runKey{}).(string)
	if !c.Maintenance.HasCommands() || !isHeld {
		return nil
	}

	if err := c.endInterrupted(ctx, run); err != nil {
		return err
	}

	found, err := c.updateMark(ctx, func(now mark) mark {
		if now.run == run {
			return now
		}

		return mark{run, maintenanceBegun}
	})

	switch {
	case err != nil:
		return err
	case found.run == run && found.state == maintenanceRefused && !of.Dead:
		return fmt.Errorf("%s: maintenance.before of cluster %s has failed in this run", subject, c.Maintenance.Cluster)
	case found.run == run:
		return nil
	}

	return c.runBefore(ctx, subject, of, run)
}

// runBefore runs the command before a maintenance, whose mark is set.
func (c *Cluster) runBefore(ctx context.Context, subject string, of Interruption, run string) error {
	if c.Maintenance.Before == "" {
		return nil
	}

	output, failure := c.runMaintenanceCommand(ctx, c.Maintenance.Before,
		request.OperationVariable+"="+string(of.Operation), request.NodesVariable+"="+strings.Join(of.Nodes, " "))

	switch {
	case failure == nil:
		c.printMaintenance("maintenance.before has run" + quoted(output))

		return nil
	case ctx.Err() != nil: // what it did is undone at the end of the run
		return fmt.Errorf("%s: interrupted in maintenance.before: run the same again", subject)
	}

	_, err := c.updateMark(ctx, func(mark) mark { return mark{run, maintenanceRefused} })

	if of.Dead {
		c.printMaintenance("maintenance.before " + failure.Error() + quoted(output) + "; that does not hold up the repair of a dead machine")

		return err
	}

	return errors.Join(fmt.Errorf("%s: maintenance.before of cluster %s %w%s. Repair what it says, or change the command in the stack file",
		subject, c.Maintenance.Cluster, failure, quoted(output)), err)
}

// endInterrupted runs the command after a maintenance for another run than this one, which was killed. Its failure does
// not stop this run.
func (c *Cluster) endInterrupted(ctx context.Context, run string) error {
	found, err := c.updateMark(ctx, func(now mark) mark { return now })
	if err != nil || found.run == "" || found.run == run {
		return err
	}

	c.printMaintenance("was not ended by " + found.run)

	if err := c.endMaintenance(ctx, found.run, request.Interrupted); err != nil {
		c.Print("warning: " + err.Error())
	}

	return ctx.Err()
}

// endMaintenance runs the command after a maintenance, if the run has begun one. If the command fails, the mark stays,
// and the next run repeats it.
func (c *Cluster) endMaintenance(ctx context.Context, run string, outcome request.RunOutcome) error {
	found, err := c.updateMark(ctx, func(now mark) mark { return now })
	if err != nil || found.run != run {
		return err
	}

	if found.state == maintenanceFailed && outcome == request.Succeeded {
		outcome = request.Failed
	}

	if c.Maintenance.After != "" && found.state != maintenanceRefused {
		output, err := c.runMaintenanceCommand(ctx, c.Maintenance.After, request.OutcomeVariable+"="+string(outcome))
		if err != nil {
			return fmt.Errorf("maintenance.after of cluster %s %w%s. The next run repeats it; or undo by hand what maintenance.before did, "+
				"and kubectl -n %s delete lease %s",
				c.Maintenance.Cluster, err, quoted(output), kube.LeaseNamespace, maintenanceLeaseName)
		}

		c.printMaintenance(fmt.Sprintf("maintenance.after has run (%s)%s", outcome, quoted(output)))
	}

	_, err = c.updateMark(ctx, func(now mark) mark {
		if now.run != run {
			return now
		}

		return mark{}
	})

	return err
}

// hasBegun reports whether a run has begun the maintenance.
func (c *Cluster) hasBegun(ctx context.Context, run string) (bool, error) {
	found, err := c.updateMark(ctx, func(now mark) mark { return now })

	return found.run == run, err
}

// endStep notes that a step has failed, and ends the maintenance of a step that belongs to no run.
func (h *leaseHolder) endStep(ctx context.Context, run string, failure error) {
	if !h.Maintenance.HasCommands() {
		return
	}

	var err error

	outcome, interrupted := request.Succeeded, ctx.Err() != nil
	if ctx = context.WithoutCancel(ctx); failure != nil {
		outcome = request.Failed
	}

	switch {
	case run == h.own.HolderIdentity:
		if interrupted {
			outcome = request.Interrupted
		}

		err = h.endMaintenance(ctx, run, outcome)
	case failure != nil:
		_, err = h.updateMark(ctx, func(now mark) mark {
			if now.run != run || now.state != maintenanceBegun {
				return now
			}

			return mark{run, maintenanceFailed}
		})
	}

	if err != nil {
		h.Print("warning: " + err.Error())
	}
}

func (c *Cluster) runMaintenanceCommand(ctx context.Context, command string, variables ...string) (string, error) {
	return runCommand(ctx, command, c.Kubeconfig, maintenanceTimeout, append(variables,
		request.StackVariable+"="+c.Maintenance.Stack, request.ClusterVariable+"="+c.Maintenance.Cluster)...)
}

func (c *Cluster) printMaintenance(what string) {
	c.Print(checks.Finding{Node: c.Maintenance.Cluster, Check: maintenanceCheck, Note: what}.String())
}

// quoted returns a command's output as the end of a sentence.
func quoted(output string) string {
	if output == "" {
		return ""
	}

	return ": " + output
}

// updateMark replaces the mark unless it stays the same, and returns the former one.
func (c *Cluster) updateMark(ctx context.Context, change func(mark) mark) (former mark, err error) {
	goal := checks.Goal{
		Before: "the state of the maintenance was known", Missed: "the state of the maintenance is not known",
		Remedy: "repair etcd and the API servers",
	}

	var tried *string // whose response was lost, if it is there

	written := c.newLeaseHolder(maintenanceLeaseName, "").own

	err = c.Within(ctx, min(runLeaseTimeout, c.Timeout), goal, func(ctx context.Context) checks.Report {
		now, address, err := FirstAnswer(c.ControlPlanes, func(address netip.Addr) (kube.Lease, error) {
			return c.Kubernetes.Lease(ctx, address, maintenanceLeaseName)
		})
		if err == nil && (tried == nil || *tried != now.HolderIdentity) {
			former = parseMark(now.HolderIdentity)

			next := change(former)
			if next == former {
				return nil
			}

			written.HolderIdentity, written.Version = next.String(), now.Version
			written.AcquireTime.Time = time.Now().Truncate(time.Microsecond)
			written.RenewTime, tried = written.AcquireTime, &written.HolderIdentity
			err = c.Kubernetes.PutLease(ctx, address, written)
		}

		if err != nil {
			return checks.Problem(kube.LeaseNamespace+"/"+maintenanceLeaseName, "lease", "cannot be read or written", err.Error())
		}

		return nil
	})

	return former, err
}
