package stacks

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/advice"
	"talos-proxmox/internal/look"
	"talos-proxmox/internal/marker"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/running"
)

// machines knows which machine has a VMID, and what it lacks.
type machines struct {
	asked   *proxmoxapi.Machines
	last    map[int]look.Seen       // the answers of the last run, by VMID
	healthy map[string]string       // generations when clusters were healthy, by the machines' names
	wanted  map[int]running.Machine // by VMID
	updated sync.Map                // VMIDs whose VM this run has updated
	warn    func(text string, args *pulumi.LogArgs) error
	warned  sync.Once
	preview bool
	owner   marker.Owner // the stack
	blank   bool         // whose state has no machine and no cluster
}

// look asks Proxmox. The answers of the last run count where there is none now, so that a run without one forgets
// nothing. In a preview the VM is not yet what the plan makes of it.
func (m *machines) look(ctx context.Context, vm look.VM) (seen look.Seen, err error) {
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

		if planned, judged := m.wanted[vm.VMID]; judged && !m.preview {
			return seen, undone(vm, planned, machine)
		}
	case errors.Is(err, proxmoxapi.ErrGone):
		_ = m.warn(
			fmt.Sprintf(
				"VM %d, which the last run left on host %s, is not there any more: `pulumi up --refresh` recreates it", vm.VMID,
				vm.Host,
			),
			nil,
		)
	default:
		m.warned.Do(func() {
			_ = m.warn(
				fmt.Sprintf("this run does not notice machines that were recreated, restored or rolled back manually: %s", err), nil,
			)
		})
	}

	return seen, nil
}

// updateHook is the hook's name in the state; it must not change.
const updateHook = "talos-proxmox-updated"

// noteUpdates returns the hook by which the engine says that it has updated a VM, or in a preview that it would, before
// it continues to what depends on the VM.
func (m *machines) noteUpdates(ctx *pulumi.Context) (*pulumi.ResourceHook, error) {
	hook, err := ctx.RegisterResourceHook(updateHook, func(args *pulumi.ResourceHookArgs) error {
		m.updated.Store(intAt(args.NewInputs, "vmId"), true)

		return nil
	}, &pulumi.ResourceHookOptions{OnDryRun: true})
	if err != nil {
		return nil, fmt.Errorf("unable to register what notes the updates of VMs: %w", err)
	}

	return hook, nil
}

// holder is the machine that has a VMID; nil = Proxmox does not say.
func (m *machines) holder(ctx *pulumi.Context, vmid int) *advice.Holder {
	machine, err := m.asked.Find(ctx.Context(), "", vmid)
	if err != nil {
		return nil
	}

	owner, _ := marker.OwnerOf(string(machine.Config["description"]))

	return &advice.Holder{
		Name:  string(machine.Config["name"]),
		Host:  machine.Host,
		Owner: owner.String(),
		Ours:  owner.Is(m.owner),
		Lost:  owner.IsLost(m.owner, m.blank),
	}
}
