package stacks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/components"
	"proxmox-talos/internal/advice"
	"proxmox-talos/internal/marker"
	"proxmox-talos/internal/proxmoxapi"
)

// machines knows which machine has a VMID, and what it lacks.
type machines struct {
	asked   *proxmoxapi.Machines
	last    map[int]components.Seen // what the last run was told, by VMID
	updated sync.Map                // VMIDs whose VM this run has updated
	warn    func(text string, args *pulumi.LogArgs) error
	warned  sync.Once
	preview bool
}

// look asks Proxmox. What the last run was told counts where there is no answer, so that a run without one forgets
// nothing. In a preview the VM is not yet what the plan makes of it.
func (m *machines) look(ctx context.Context, vm components.VM) (seen components.Seen, err error) {
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
		if !m.preview {
			return seen, undone(vm, machine)
		}
	case errors.Is(err, proxmoxapi.ErrGone):
		_ = m.warn(fmt.Sprintf("VM %d, which the last run left on host %s, is not there any more: `pulumi up --refresh` recreates it", vm.VMID, vm.Host), nil)
	default:
		m.warned.Do(func() {
			_ = m.warn(fmt.Sprintf("this run does not notice machines that were recreated, restored or rolled back by hand: %s", err), nil)
		})
	}

	return seen, nil
}

// updateHook is the hook's name in the state; it must not change.
const updateHook = "talos-proxmox-updated"

// noteUpdates returns the hook by which the engine says that it has updated a VM, or in a preview that it would, before
// it goes on to what depends on the VM.
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

// undone finds what is planned for a VM and Proxmox does not have, once the run has done what it found to do: where a
// change of a VM failed, the state has what was asked for, and the next run finds nothing to do.
func undone(vm components.VM, machine proxmoxapi.Machine) error {
	var lacks []string
	if machine.Stopped {
		lacks = append(lacks, "it is stopped")
	}
	if cores := machine.Number("cores"); cores*vm.Cores != 0 && cores != vm.Cores {
		lacks = append(lacks, fmt.Sprintf("it has %d cores, not %d", cores, vm.Cores))
	}
	if memory := machine.Number("memory"); memory*vm.MemoryMiB != 0 && memory != vm.MemoryMiB {
		lacks = append(lacks, fmt.Sprintf("it has %d MiB of memory, not %d", memory, vm.MemoryMiB))
	}
	for _, place := range slices.Sorted(maps.Keys(vm.DisksGiB)) {
		switch size, found := machine.DiskGiB(place); {
		case !found:
			lacks = append(lacks, "its disk "+place+" is not there")
		case size < vm.DisksGiB[place]:
			lacks = append(lacks, fmt.Sprintf("its disk %s has %d GiB, not %d", place, size, vm.DisksGiB[place]))
		}
	}
	lacks = append(lacks, otherOptions(vm, machine)...)
	if len(lacks) == 0 {
		return nil
	}

	return fmt.Errorf("%s (VM %d on host %s) is not as planned: %s. A run that failed left it so, or somebody changed it: `pulumi up --refresh` mends it",
		vm.Name, vm.VMID, machine.Host, strings.Join(lacks, ", "))
}

// otherOptions finds cards and devices that are not as planned.
func otherOptions(vm components.VM, machine proxmoxapi.Machine) (lacks []string) {
	for _, device := range slices.Sorted(maps.Keys(vm.Options)) {
		if _, found := machine.Option(device, ""); !found {
			lacks = append(lacks, "its "+device+" is not there")

			continue
		}
		for _, option := range slices.Sorted(maps.Keys(vm.Options[device])) {
			want := vm.Options[device][option]
			if is, _ := machine.Option(device, option); is != want {
				lacks = append(lacks, fmt.Sprintf("its %s has %s %s, not %s", device, option, cmp.Or(is, "none"), cmp.Or(want, "none")))
			}
		}
	}

	return lacks
}

// holder is the machine that has a VMID; nil = Proxmox does not say.
func (m *machines) holder(ctx *pulumi.Context, vmid int) *advice.Holder {
	machine, err := m.asked.Find(ctx.Context(), "", vmid)
	if err != nil {
		return nil
	}
	owner, _ := marker.OwnerOf(string(machine.Config["description"]))

	return &advice.Holder{Name: string(machine.Config["name"]), Host: machine.Host, Owner: string(owner), Ours: owner.Is(ctx.Project(), ctx.Stack())}
}
