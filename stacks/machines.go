package stacks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/errorhints"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/internal/vmlookup"
)

// machines knows which machine has a VMID, and what it lacks.
type machines struct {
	asked   *proxmoxapi.Machines
	last    map[int]vmlookup.Seen  // the answers of the last run, by VMID
	healthy map[string]string      // generations when clusters were healthy, by the machines' names
	wanted  map[int]vmdiff.Machine // by VMID
	updated sync.Map               // VMIDs whose VM this run has updated
	warn    func(text string, args *pulumi.LogArgs) error
	warned  sync.Once
	failed  failures
	preview bool
	owner   ownership.Owner // the stack
	blank   bool            // whose state has no machine and no cluster
}

// lookUp asks Proxmox. The answers of the last run count where there is none now, so that a run without one forgets
// nothing. A machine that is not there fails an up, which would end as if everything were; in a preview it is a
// warning, as the VM is not yet what the plan makes of it.
func (m *machines) lookUp(ctx context.Context, vm vmlookup.VM) (seen vmlookup.Seen, err error) {
	seen = m.last[vm.VMID]
	if _, updated := m.updated.Load(vm.VMID); updated {
		seen.Updates++
	}

	machine, err := m.asked.Find(ctx, vm.Host, vm.VMID)
	switch {
	case err == nil:
		if before := seen.Generation; before != "" && before != machine.Generation() {
			seen.Remade++
		}

		seen.Generation = machine.Generation()
		seen.Configured = seen.Generation != "" && seen.Generation == m.healthy[vm.Name]

		planned, judged := m.wanted[vm.VMID]
		if !judged {
			return seen, nil
		}

		restarted, err := m.finishUpdate(ctx, vm, planned, machine)
		if _, updated := m.updated.Load(vm.VMID); restarted && !updated {
			seen.Updates++
		}

		return seen, m.failed.with(err)
	case errors.Is(err, proxmoxapi.ErrGone):
		gone := fmt.Errorf("%s (VM %d), which the last run left on host %s, is not there any more: `pulumi up --refresh` "+
			"recreates it", vm.Name, vm.VMID, vm.Host)
		if _, judged := m.wanted[vm.VMID]; judged && !m.preview {
			return seen, m.failed.with(gone)
		}

		_ = m.warn(gone.Error(), nil)
	default:
		m.warned.Do(func() {
			_ = m.warn(
				fmt.Sprintf("this run does not notice machines that were recreated, restored or rolled back manually: %s", err), nil,
			)
		})
	}

	return seen, nil
}

// failures are what an up finds at its machines. A run ends with the first error of an output that arrives, so each of
// these is all of them.
type failures struct {
	mutex sync.Mutex
	found []string
}

func (f *failures) with(err error) error {
	if err == nil {
		return nil
	}

	f.mutex.Lock()
	defer f.mutex.Unlock()

	f.found = append(f.found, err.Error())

	return f
}

// Error is complete when all machines have been checked.
func (f *failures) Error() string {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	return strings.Join(slices.Sorted(slices.Values(f.found)), "\n")
}

// updateHook is the hook's name in the state; it must not change.
const updateHook = "talos-proxmox-updated"

// noteUpdates returns the hook by which the engine says that it has updated a VM, or in a preview that it would, before
// it continues to what depends on the VM.
func (m *machines) noteUpdates(ctx *pulumi.Context) (*pulumi.ResourceHook, error) {
	hook, err := ctx.RegisterResourceHook(updateHook, func(args *pulumi.ResourceHookArgs) error {
		m.updated.Store(numberAt(args.NewInputs, "vmId"), true)

		return nil
	}, &pulumi.ResourceHookOptions{OnDryRun: true})
	if err != nil {
		return nil, fmt.Errorf("unable to register what notes the updates of VMs: %w", err)
	}

	return hook, nil
}

// holder is the machine that has a VMID; nil = Proxmox does not say.
func (m *machines) holder(ctx *pulumi.Context, vmid int) *errorhints.Holder {
	machine, err := m.asked.Find(ctx.Context(), "", vmid)
	if err != nil {
		return nil
	}

	owner, _ := ownership.OwnerOf(string(machine.Config["description"]))

	return &errorhints.Holder{
		Name:  string(machine.Config["name"]),
		Host:  machine.Host,
		Owner: owner.String(),
		Ours:  owner.Is(m.owner),
		Lost:  owner.IsLost(m.owner, m.blank),
	}
}
