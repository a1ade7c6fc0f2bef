package recovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
)

// machine is a VM as Proxmox has it.
type machine struct {
	proxmoxapi.Listed

	description, lock string
	// created is the creation time in the configuration; a clone has its template's.
	created time.Time
	// unnamedClone: the clone was interrupted before Proxmox wrote its name and description.
	// partlyDeleted: the deletion was interrupted; the disks are gone and the configuration has only its lock.
	unnamedClone, partlyDeleted bool
	// proven says that such a machine is the killed run's: a task of this stack's credentials began the clone from the
	// planned template; or the partly deleted machine has the VMID, on the build's host, of a template that was being
	// built. A build starts only if no other machine has its VMID, and ends a failure with a deletion.
	proven bool
	// protected: Proxmox refuses to delete it.
	protected bool
	// disks are the disks that its removal deletes, with their sizes.
	disks []string
}

// diskList lists the disks that are removed with the machine, as the end of a sentence; empty without any.
func (m machine) diskList() string {
	if len(m.disks) == 0 {
		return ""
	}

	return " with its disks " + strings.Join(m.disks, ", ")
}

// String names the machine: VM 3000 prod-general-1 on pve1 (running).
func (m machine) String() string {
	return fmt.Sprintf("VM %d %s on %s (%s)", m.VMID, m.Name, m.Host, m.Status)
}

// foreignReason says why a machine is not provably the one that the killed run was creating; empty if it is.
func (r *recovery) foreignReason(c creation, m machine) string {
	owner, marked := ownership.OwnerOf(m.description)
	switch {
	case m.proven:
		return ""
	case m.partlyDeleted:
		return fmt.Sprintf("its removal was cut short, which took its name away, and nothing says that it was %s. If it was, this "+
			"ends it: `qm unlock %d && qm destroy %[2]d` on %s", c.name, m.VMID, m.Host)
	case m.unnamedClone:
		return fmt.Sprintf("it is a clone that ended before it had a name, and no task of %s on %s says that it is %s. If it is, this removes it: "+
			"`qm unlock %d && qm destroy %d` on %s", r.identity, c.sourceHost, c.name, m.VMID, m.VMID, m.Host)
	case m.Name != c.name:
		return fmt.Sprintf("it is not %s", c.name)
	case !marked:
		return "its description does not say that this stack made it"
	case !owner.Matches(r.owner):
		return r.foreignOwnerReason(owner)
	case c.provenance == "" && (m.Template == 1 || !c.describes(m.description)):
		return "its description is not the one that this stack gives it"
	case c.provenance != "" && !strings.Contains(m.description+" ", " provenance="+c.provenance+" "):
		return "it is a template that was built from something else"
	default:
		return ""
	}
}

// foreignOwnerReason names the other stack that something belongs to.
func (r *recovery) foreignOwnerReason(owner ownership.Owner) string {
	if owner.IsNamesake(r.owner) {
		return fmt.Sprintf("stack %s made it, which has this one's names and another id: the state was lost, or this is another "+
			"backend (`pulumi whoami --verbose` names it)", owner)
	}

	return fmt.Sprintf("stack %s made it", owner)
}

// findMachines returns the VMs that exist with the VMIDs of pending creations.
func (r *recovery) findMachines(ctx context.Context) (map[int]machine, error) {
	if len(r.creations) == 0 {
		return nil, nil //nolint:nilnil // nothing to look for
	}

	all, err := r.api.machines(ctx)
	if err != nil {
		return nil, err
	}

	found := map[int]machine{}

	for _, c := range r.creations {
		m, exists := all[c.vmid]
		if !exists {
			continue
		}

		if err := r.api.describe(ctx, &m); err != nil {
			return nil, err
		}

		m.unnamedClone = m.Name == "" && m.description == unnamedCloneDescription && c.source != 0

		switch {
		case m.unnamedClone:
			clonedAt, err := r.api.lastClone(ctx, r.identity, c.sourceHost, c.source, m.VMID)
			if err != nil {
				return nil, err
			}

			m.proven = !clonedAt.IsZero()
		case m.partlyDeleted:
			m.proven = c.build != nil && c.host == m.Host
		}

		switch {
		case m.proven:
			m.Name = c.name
		case m.unnamedClone || m.partlyDeleted:
			m.Name = "without a name"
		}

		found[m.VMID] = m
	}

	return found, nil
}

// runningTasks describes Proxmox' unfinished tasks of the pending creations: machines, clone sources and downloads.
func (r *recovery) runningTasks(ctx context.Context) ([]string, error) {
	hosts := map[string]bool{}

	vmids := map[int]bool{}
	for _, c := range r.creations {
		vmids[c.vmid] = true
		for _, host := range []string{c.host, c.sourceHost} {
			if host != "" {
				hosts[host] = true
			}
		}

		if c.source != 0 {
			vmids[c.source] = true
		}
	}

	for _, c := range r.files {
		hosts[c.host] = true
	}

	all, err := r.api.machines(ctx)
	if err != nil {
		return nil, err
	}

	for vmid := range vmids {
		if m, exists := all[vmid]; exists {
			hosts[m.Host] = true
		}
	}

	var running []string

	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		tasks, err := proxmoxapi.RunningTasks(ctx, r.api.Get, host)
		if err != nil {
			return nil, err
		}

		for _, t := range tasks {
			if vmid, err := strconv.Atoi(t.ID); err == nil && vmids[vmid] {
				running = append(running, fmt.Sprintf("%s of VM %d on %s", t.Type, vmid, host))
			}

			if t.Type == "download" && slices.Contains(r.files, download{host, t.ID}) {
				running = append(running, fmt.Sprintf("download of %s on %s", t.ID, host))
			}
		}
	}

	return running, nil
}

// maxParallelRemovals bounds how many machines are removed at the same time.
const maxParallelRemovals = 4

// removeMachines stops and destroys the machines of pending creations, and reports what it leaves alone.
func (r *recovery) removeMachines(ctx context.Context) error {
	machines, err := r.findMachines(ctx)
	if err != nil {
		return err
	}

	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		problems = make([]error, len(r.creations))
		slots    = make(chan struct{}, maxParallelRemovals)
	)

	printf := func(format string, values ...any) {
		mu.Lock()
		defer mu.Unlock()

		r.printf(format, values...)
	}

	for i, c := range r.creations {
		m, exists := machines[c.vmid]
		if !exists || c.build != nil {
			continue
		}

		if reason := r.foreignReason(c, m); reason != "" {
			printf("%s is left alone: %s", m, reason)

			continue
		}

		wg.Go(func() {
			slots <- struct{}{}

			defer func() { <-slots }()

			var note string
			if note, problems[i] = r.remove(ctx, c, m); problems[i] == nil {
				printf("%s is removed%s%s", m, m.diskList(), note)
			}
		})
	}

	wg.Wait()

	return errors.Join(problems...)
}

// remove destroys a machine. The note says which volumes stay.
func (r *recovery) remove(ctx context.Context, c creation, m machine) (note string, err error) {
	if m.lock != "" {
		return "", fmt.Errorf(
			"%s is locked (%s) and no task runs for it: `qm unlock %d` on %s, then recover again", m, m.lock, m.VMID, m.Host,
		)
	}

	// It may have been started since confirmByName.
	if reason, err := r.inUseReason(ctx, c, m); err != nil || reason != "" && !r.isConfirmed(m) {
		return "", errors.Join(err, r.confirmationError(m, reason))
	}

	if m.Status != stopped {
		if err := r.api.stop(ctx, m, r.Poll); err != nil {
			return "", fmt.Errorf("unable to stop %s: %w", m, err)
		}
	}

	if err := r.api.destroy(ctx, m, r.Poll); err != nil {
		return "", fmt.Errorf("unable to remove %s: %w", m, err)
	}

	volumes, err := proxmoxapi.Volumes(ctx, r.api.Get, m.Host, m.VMID)

	switch {
	case err != nil:
		return fmt.Sprintf("; what may stay of its volumes is not known: %s", err), nil
	case len(volumes) > 0:
		return fmt.Sprintf("; volumes of its VMID that it did not name stay: %s. Where nobody needs one, `pvesm free <volume>` on %s",
			strings.Join(volumes, ", "), m.Host), nil
	default:
		return "", nil
	}
}

// finishRemovalScript returns a script that completes an interrupted deletion. The removal command of the template runs
// it, which excludes builds of the template. Through the API only root@pam with a password could skip the lock (source:
// PVE::API2::Qemu, skiplock).
func finishRemovalScript(vmid int) string {
	return fmt.Sprintf(`if [ "$(qm config %[1]d)" != 'lock: destroyed' ]; then
  echo 'VM %[1]d is not what a removal left that was cut short: it is left alone'
  exit 1
fi
qm unlock %[1]d && qm destroy %[1]d && echo 'VM %[1]d is removed'
`, vmid)
}

// removeTemplates runs the removal commands of templates in their hosts' shells. A removal waits for a running build,
// and leaves alone what is not of this build.
func (r *recovery) removeTemplates(ctx context.Context) error {
	machines, err := r.findMachines(ctx)
	if err != nil {
		return err
	}

	var problems []error

	for _, c := range r.creations {
		if c.build == nil {
			continue
		}

		r.printf(
			"template %s (VM %d): its host is asked to remove it, which waits for a build that still runs", c.name, c.vmid,
		)

		script := c.build.script
		if m := machines[c.vmid]; m.partlyDeleted && m.proven {
			script = finishRemovalScript(m.VMID)
		}

		output, err := r.Shell(ctx, c.build.connection, c.build.remove, script)
		for line := range strings.Lines(output) {
			r.printf("%s", strings.TrimSpace(line))
		}

		if err != nil {
			problems = append(problems, fmt.Errorf("unable to remove template %s, VM %d: %w", c.name, c.vmid, err))
		}
	}

	return errors.Join(problems...)
}
