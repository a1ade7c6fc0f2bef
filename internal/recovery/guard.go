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

// clockSkew is by how much the clocks of Proxmox and of this machine may differ.
const clockSkew = 5 * time.Minute

// readBegin finds out since when there can be an interrupted run: the stack's last run that succeeded has begun by
// then, and the state has its first resource. A machine that is older is not what such a run left.
func (r *recovery) readBegin(ctx context.Context) error {
	if len(r.ours) == 0 {
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
		if u.Kind == "update" && u.Result == "succeeded" && u.Start.After(r.since) {
			r.since = u.Start
		}
	}

	return nil
}

// inUse says why a machine may be more than what an interrupted run left; empty = it is no more. Such a run may have
// started it, but has not configured it: a configuration is applied only to a machine that the state has. Of a machine
// that somebody has named no pending creation proves that.
func (r *recovery) inUse(ctx context.Context, made creation, m machine) (string, error) {
	switch {
	case m.begun || made.build != nil:
		return "", nil
	case made.named && m.Status != stopped:
		return "it runs", nil
	case m.Status != stopped && made.address.IsValid() && tlsprobe.Look(ctx, made.address, tlsprobe.Expected{}).Configured:
		return fmt.Sprintf("a machine with a Talos configuration answers at its address %s", made.address), nil
	case r.since.IsZero():
		return "", nil
	}

	at := m.created
	if made.source != 0 { // a clone has the time of its template
		cloned, err := r.api.cloned(ctx, r.identity, made.sourceHost, made.source, m.VMID)
		if err != nil {
			return "", err
		}

		at = cloned
	}

	const form = time.DateTime + " MST"

	switch {
	case at.IsZero():
		return "Proxmox does not say when it was made", nil
	case at.Add(clockSkew).Before(r.since):
		return fmt.Sprintf(
			"it was made at %s, and what could be interrupted began later, at %s", at.UTC().Format(form), r.since.UTC().Format(form),
		), nil
	default:
		return "", nil
	}
}

func (r *recovery) isConfirmed(m machine) bool { return slices.Contains(r.Confirmed, m.Name) }

// refusal is about a machine that may be in use.
func (r *recovery) refusal(m machine, why string) error {
	if why == "" {
		return nil
	}

	return fmt.Errorf(
		"%s may be in use: %s. If the state was lost, or is in another backend, do not remove anything: docs/recovery.md, "+
			"\"The state is lost\". To remove it with its data, name it: talos-proxmox recover %s%s --confirm %s",
		m, why, r.Stack, r.vmid(m), m.Name,
	)
}

// vmid is how `talos-proxmox recover` names a machine that no pending creation is of.
func (r *recovery) vmid(m machine) string {
	if !slices.Contains(r.VMIDs, m.VMID) {
		return ""
	}

	return fmt.Sprintf(" --vmid %d", m.VMID)
}

// doubts say why machines that would be removed may be in use, by VMID. They are asked at once: one that does not
// answer takes its time.
func (r *recovery) doubts(ctx context.Context, machines map[int]machine) (map[int]string, error) {
	var all sync.WaitGroup

	why, problems := make([]string, len(r.ours)), make([]error, len(r.ours))

	for i, made := range r.ours {
		if m, there := machines[made.vmid]; there && r.foreign(made, m) == "" {
			all.Go(func() { why[i], problems[i] = r.inUse(ctx, made, m) })
		}
	}

	all.Wait()

	doubts := map[int]string{}

	for i, made := range r.ours {
		if why[i] != "" {
			doubts[made.vmid] = why[i]
		}
	}

	return doubts, errors.Join(problems...)
}

// confirmByName has each machine that may be in use confirmed by its name, or refuses.
func (r *recovery) confirmByName(ctx context.Context, machines map[int]machine) error {
	doubts, err := r.doubts(ctx, machines)
	if err != nil {
		return err
	}

	var problems []error

	for _, vmid := range slices.Sorted(maps.Keys(doubts)) {
		m, why := machines[vmid], doubts[vmid]
		if r.isConfirmed(m) {
			continue
		}

		if r.TypeName == nil {
			problems = append(problems, r.refusal(m, why))

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
