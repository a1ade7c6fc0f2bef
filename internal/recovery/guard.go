package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"talos-proxmox/internal/tlsprobe"
)

// clockSkew is the tolerated difference between the clocks of Proxmox and this machine.
const clockSkew = 5 * time.Minute

// readLastRunStart sets the earliest start of the interrupted run: it began after the start of the last successful run
// and after the first resource in the state was created. Such a run did not leave older machines.
func (r *recovery) readLastRunStart(ctx context.Context) error {
	if len(r.creations) == 0 {
		return nil
	}

	out, err := r.Pulumi(ctx, nil, "stack", "history", "--stack", r.Stack, "--json", "--page-size", "100")
	if err != nil {
		return fmt.Errorf("unable to read the history of stack %q: %w", r.Stack, err)
	}

	var updates []struct {
		Kind   string    `json:"kind"`
		Result string    `json:"result"`
		Start  time.Time `json:"startTime"`
	}
	if err := json.Unmarshal(out, &updates); err != nil {
		return fmt.Errorf("unable to read the history of stack %q: %w", r.Stack, err)
	}

	for _, u := range updates {
		if u.Kind == "update" && u.Result == "succeeded" && u.Start.After(r.runStart) {
			r.runStart = u.Start
		}
	}

	return nil
}

// inUseReason says why a machine may be in use instead of a remainder of the interrupted run; empty if it is not. The
// run may have started the machine, but not configured it: configurations are applied only to machines in the state.
// No pending creation proves this for a machine named by VMID.
func (r *recovery) inUseReason(ctx context.Context, c creation, m machine) (string, error) {
	switch {
	case m.unnamedClone || c.provenance != "":
		return "", nil
	case c.byVMID && m.Status != stopped:
		return "it runs", nil
	case m.Status != stopped && c.address.IsValid() && tlsprobe.Probe(ctx, c.address, tlsprobe.Expected{}).Configured:
		return fmt.Sprintf("a machine with a Talos configuration answers at its address %s", c.address), nil
	case r.runStart.IsZero():
		return "", nil
	}

	createdAt := m.created
	if c.source != 0 { // a clone's configuration has the creation time of its template
		clonedAt, err := r.api.lastClone(ctx, r.identity, c.sourceHost, c.source, m.VMID)
		if err != nil {
			return "", err
		}

		createdAt = clonedAt
	}

	const timeFormat = time.DateTime + " MST"

	switch {
	case createdAt.IsZero():
		return "Proxmox does not say when it was made", nil
	case createdAt.Add(clockSkew).Before(r.runStart):
		return fmt.Sprintf(
			"it was made at %s, and what could be interrupted began later, at %s",
			createdAt.UTC().Format(timeFormat), r.runStart.UTC().Format(timeFormat),
		), nil
	default:
		return "", nil
	}
}

func (r *recovery) isConfirmed(m machine) bool { return slices.Contains(r.Confirmed, m.Name) }

// confirmationError asks to confirm a machine that may be in use, by name; nil without a reason.
func (r *recovery) confirmationError(m machine, reason string) error {
	if reason == "" {
		return nil
	}

	return fmt.Errorf(
		"%s may be in use: %s. If the state was lost, or is in another backend, do not remove anything: docs/recovery.md, "+
			"\"The state is lost\". To remove it with its data, name it: talos-proxmox recover %s%s --confirm %s",
		m, reason, r.Stack, r.vmidFlag(m), m.Name,
	)
}

// vmidFlag returns the flag of `talos-proxmox recover` for a machine that was named by VMID.
func (r *recovery) vmidFlag(m machine) string {
	if !slices.Contains(r.VMIDs, m.VMID) {
		return ""
	}

	return fmt.Sprintf(" --vmid %d", m.VMID)
}

// inUseReasons returns inUseReason by VMID of the machines that would be removed. It runs in parallel: machines that do
// not answer time out.
func (r *recovery) inUseReasons(ctx context.Context, machines map[int]machine) (map[int]string, error) {
	var wg sync.WaitGroup

	results, problems := make([]string, len(r.creations)), make([]error, len(r.creations))

	for i, c := range r.creations {
		if m, exists := machines[c.vmid]; exists && r.foreignReason(c, m) == "" {
			wg.Go(func() { results[i], problems[i] = r.inUseReason(ctx, c, m) })
		}
	}

	wg.Wait()

	reasons := map[int]string{}

	for i, c := range r.creations {
		if results[i] != "" {
			reasons[c.vmid] = results[i]
		}
	}

	return reasons, errors.Join(problems...)
}

// confirmByName asks for the name of each machine that may be in use; without TypeName, such machines are errors.
func (r *recovery) confirmByName(ctx context.Context, machines map[int]machine) error {
	reasons, err := r.inUseReasons(ctx, machines)
	if err != nil {
		return err
	}

	var problems []error

	for _, vmid := range slices.Sorted(maps.Keys(reasons)) {
		m, why := machines[vmid], reasons[vmid]
		if r.isConfirmed(m) {
			continue
		}

		if r.TypeName == nil {
			problems = append(problems, r.confirmationError(m, why))

			continue
		}

		typed, err := r.TypeName(fmt.Sprintf("%s may be in use: %s. It goes with its data", m, why))
		if err != nil {
			return fmt.Errorf("unable to ask: %w", err)
		}

		if typed != m.Name {
			return ErrDeclined
		}

		r.Confirmed = append(r.Confirmed, typed)
	}

	return errors.Join(problems...)
}
