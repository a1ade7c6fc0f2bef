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
	// created is when its configuration was first written: of a clone, its template's.
	created time.Time
	// begun is a clone that has no name and no marker yet. cut is one whose removal was cut short: its disks are gone, and
	// its configuration says nothing but that.
	begun, cut bool
	// proven says that such a machine is the killed run's: a task of this stack's credentials began the clone from the
	// template that it is to be made of; the removal is of the template that was being built, which has the VMID on the
	// host of the build: that begins only where no other machine has it, and its own end is a removal.
	proven bool
	// protected is one that Proxmox does not delete.
	protected bool
	// disks are those that its removal deletes, with their sizes.
	disks []string
}

// withDisks says which disks go with the machine; nothing where it has none.
func (m machine) withDisks() string {
	if len(m.disks) == 0 {
		return ""
	}

	return " with its disks " + strings.Join(m.disks, ", ")
}

// String names the machine: VM 3000 prod-general-1 on pve1 (running).
func (m machine) String() string {
	return fmt.Sprintf("VM %d %s on %s (%s)", m.VMID, m.Name, m.Host, m.Status)
}

// foreign says why a machine is not provably the one that the killed run was making; empty = it is.
func (r *recovery) foreign(made creation, m machine) string {
	owner, marked := ownership.OwnerOf(m.description)
	switch {
	case m.proven:
		return ""
	case m.cut:
		return fmt.Sprintf("its removal was cut short, which took its name away, and nothing says that it was %s. If it was, this "+
			"ends it: `qm unlock %d && qm destroy %[2]d` on %s", made.name, m.VMID, m.Host)
	case m.begun:
		return fmt.Sprintf("it is a clone that ended before it had a name, and no task of %s on %s says that it is %s. If it is, this removes it: "+
			"`qm unlock %d && qm destroy %d` on %s", r.identity, made.sourceHost, made.name, m.VMID, m.VMID, m.Host)
	case m.Name != made.name:
		return fmt.Sprintf("it is not %s", made.name)
	case !marked:
		return "its description does not say that this stack made it"
	case !owner.Is(r.owner):
		return r.anothers(owner)
	case made.build == nil && (m.Template == 1 || !made.describes(m.description)):
		return "its description is not the one that this stack gives it"
	case made.build != nil && !strings.Contains(m.description+" ", " provenance="+made.build.provenance+" "):
		return "it is a template that was built from something else"
	default:
		return ""
	}
}

// anothers says whose something is.
func (r *recovery) anothers(owner ownership.Owner) string {
	if owner.IsNamesake(r.owner) {
		return fmt.Sprintf("stack %s made it, which has this one's names and another id: the state was lost, or this is another "+
			"backend (`pulumi whoami --verbose` names it)", owner)
	}

	return fmt.Sprintf("stack %s made it", owner)
}

// machines are the VMs that there are under the VMIDs of the pending creations.
func (r *recovery) machines(ctx context.Context) (map[int]machine, error) {
	if len(r.ours) == 0 {
		return nil, nil //nolint:nilnil // none
	}

	all, err := r.api.machines(ctx)
	if err != nil {
		return nil, err
	}

	found := map[int]machine{}

	for _, made := range r.ours {
		m, there := all[made.vmid]
		if !there {
			continue
		}

		if err := r.api.describe(ctx, &m); err != nil {
			return nil, err
		}

		m.begun = m.Name == "" && m.description == begunClone && made.source != 0

		switch {
		case m.begun:
			cloned, err := r.api.cloned(ctx, r.identity, made.sourceHost, made.source, m.VMID)
			if err != nil {
				return nil, err
			}

			m.proven = !cloned.IsZero()
		case m.cut:
			m.proven = made.build != nil && made.host == m.Host
		}

		switch {
		case m.proven:
			m.Name = made.name
		case m.begun || m.cut:
			m.Name = "without a name"
		}

		found[m.VMID] = m
	}

	return found, nil
}

// running names the tasks that Proxmox still works on for the pending creations, or that hold their machines.
func (r *recovery) running(ctx context.Context) ([]string, error) {
	hosts := map[string]bool{}

	wanted := map[int]bool{}
	for _, made := range r.ours {
		wanted[made.vmid] = true
		for _, host := range []string{made.host, made.sourceHost} {
			if host != "" {
				hosts[host] = true
			}
		}

		if made.source != 0 {
			wanted[made.source] = true
		}
	}

	for _, made := range r.files {
		hosts[made.host] = true
	}

	all, err := r.api.machines(ctx)
	if err != nil {
		return nil, err
	}

	for vmid := range wanted {
		if m, there := all[vmid]; there {
			hosts[m.Host] = true
		}
	}

	var running []string

	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		tasks, err := r.api.tasks(ctx, host)
		if err != nil {
			return nil, err
		}

		for _, t := range tasks {
			if vmid, err := strconv.Atoi(t.ID); err == nil && wanted[vmid] {
				running = append(running, fmt.Sprintf("%s of VM %d on %s", t.Type, vmid, host))
			}

			if t.Type == "download" && slices.Contains(r.files, download{host, t.ID}) {
				running = append(running, fmt.Sprintf("download of %s on %s", t.ID, host))
			}
		}
	}

	return running, nil
}

// removersAtOnce bounds how many machines are removed at the same time.
const removersAtOnce = 4

// removeMachines stops and destroys what the pending creations made, and names what it leaves alone.
func (r *recovery) removeMachines(ctx context.Context) error {
	machines, err := r.machines(ctx)
	if err != nil {
		return err
	}

	var (
		all      sync.WaitGroup
		saying   sync.Mutex
		problems = make([]error, len(r.ours))
		places   = make(chan struct{}, removersAtOnce)
	)

	say := func(format string, values ...any) {
		saying.Lock()
		defer saying.Unlock()

		r.printf(format, values...)
	}

	for i, made := range r.ours {
		m, there := machines[made.vmid]
		if !there || made.build != nil {
			continue
		}

		if why := r.foreign(made, m); why != "" {
			say("%s is left alone: %s", m, why)

			continue
		}

		all.Go(func() {
			places <- struct{}{}

			defer func() { <-places }()

			var left string
			if left, problems[i] = r.remove(ctx, made, m); problems[i] == nil {
				say("%s is removed%s%s", m, m.withDisks(), left)
			}
		})
	}

	all.Wait()

	return errors.Join(problems...)
}

// remove returns what it says of the volumes that stay.
func (r *recovery) remove(ctx context.Context, made creation, m machine) (left string, err error) {
	if m.lock != "" {
		return "", fmt.Errorf(
			"%s is locked (%s) and no task runs for it: `qm unlock %d` on %s, then recover again", m, m.lock, m.VMID, m.Host,
		)
	}

	// It may have been started since the question.
	if why, err := r.inUse(ctx, made, m); err != nil || why != "" && !r.isConfirmed(m) {
		return "", errors.Join(err, r.refusal(m, why))
	}

	if m.Status != stopped {
		if err := r.api.stop(ctx, m, r.Poll); err != nil {
			return "", fmt.Errorf("unable to stop %s: %w", m, err)
		}
	}

	if err := r.api.destroy(ctx, m, r.Poll); err != nil {
		return "", fmt.Errorf("unable to remove %s: %w", m, err)
	}

	volumes, err := r.api.volumes(ctx, m.Host, m.VMID)

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

// endRemoval is the script that ends a removal which was cut short, for the command that a template is removed with: no
// build of it runs meanwhile. Through the API only root@pam could, with a password (source: PVE::API2::Qemu, skiplock).
func endRemoval(vmid int) string {
	return fmt.Sprintf(`if [ "$(qm config %[1]d)" != 'lock: destroyed' ]; then
  echo 'VM %[1]d is not what a removal left that was cut short: it is left alone'
  exit 1
fi
qm unlock %[1]d && qm destroy %[1]d && echo 'VM %[1]d is removed'
`, vmid)
}

// removeTemplates runs the templates' own removal in their hosts' shells. It waits for a build that still runs there,
// and leaves alone what is not of this build.
func (r *recovery) removeTemplates(ctx context.Context) error {
	machines, err := r.machines(ctx)
	if err != nil {
		return err
	}

	var problems []error

	for _, made := range r.ours {
		if made.build == nil {
			continue
		}

		r.printf(
			"template %s (VM %d): its host is asked to remove it, which waits for a build that still runs", made.name, made.vmid,
		)

		script := made.build.script
		if m := machines[made.vmid]; m.cut && m.proven {
			script = endRemoval(m.VMID)
		}

		printed, err := r.Shell(ctx, made.build.connection, made.build.remove, script)
		for line := range strings.Lines(printed) {
			r.printf("%s", strings.TrimSpace(line))
		}

		if err != nil {
			problems = append(problems, fmt.Errorf("unable to remove template %s, VM %d: %w", made.name, made.vmid, err))
		}
	}

	return errors.Join(problems...)
}
