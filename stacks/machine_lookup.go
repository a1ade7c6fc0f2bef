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

// machineLookup reads machines from Proxmox and compares them with the plan.
type machineLookup struct {
	proxmox            *proxmoxapi.Machines
	last               map[int]vmlookup.State // the results of the last run, by VMID
	healthyGenerations map[string]string      // when clusters were healthy, by machine name
	planned            map[int]vmdiff.Machine // by VMID
	updated            sync.Map               // VMIDs of VMs that this run has updated
	warn               func(text string, args *pulumi.LogArgs) error
	warned             sync.Once
	failures           failures
	preview            bool
	owner              ownership.Owner // the stack
	isBlank            bool            // see [lastRun.isBlank]
}

// lookUp queries Proxmox. Without an answer, the results of the last run stay valid. A missing machine fails an up,
// which would otherwise succeed without it; in a preview it is a warning, because the VM is not yet updated.
func (m *machineLookup) lookUp(ctx context.Context, vm vmlookup.VM) (seen vmlookup.State, err error) {
	seen = m.last[vm.VMID]
	if _, updated := m.updated.Load(vm.VMID); updated {
		seen.Updates++
	}

	machine, err := m.proxmox.Find(ctx, vm.Host, vm.VMID)
	switch {
	case err == nil:
		if before := seen.Generation; before != "" && before != machine.Generation() {
			seen.Recreated++
		}

		seen.Generation = machine.Generation()
		seen.Configured = seen.Generation != "" && seen.Generation == m.healthyGenerations[vm.Name]

		planned, checked := m.planned[vm.VMID]
		if !checked {
			return seen, nil
		}

		restarted, err := m.finishUpdate(ctx, vm, planned, machine)
		if _, updated := m.updated.Load(vm.VMID); restarted && !updated {
			seen.Updates++
		}

		return seen, m.failures.add(err)
	case errors.Is(err, proxmoxapi.ErrNotFound):
		gone := fmt.Errorf("%s (VM %d), which the last run left on host %s, no longer exists: `pulumi up --refresh` "+
			"recreates it", vm.Name, vm.VMID, vm.Host)
		if _, checked := m.planned[vm.VMID]; checked && !m.preview {
			return seen, m.failures.add(gone)
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

// isStopped reports whether Proxmox says that a machine is off.
func (m *machineLookup) isStopped(ctx context.Context, host string, vmid int) bool {
	machine, err := m.proxmox.Find(ctx, host, vmid)

	return err == nil && machine.Stopped
}

// failures collects the errors of machines in an up. A run ends with the first error of an output, so each of them is
// this list.
type failures struct {
	mutex sync.Mutex
	found []string
}

func (f *failures) add(err error) error {
	if err == nil {
		return nil
	}

	f.mutex.Lock()
	defer f.mutex.Unlock()

	f.found = append(f.found, err.Error())

	return f
}

// Error returns all errors found until now.
func (f *failures) Error() string {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	return strings.Join(slices.Sorted(slices.Values(f.found)), "\n")
}

// updateHook is the hook's name in the state; it must not change.
const updateHook = "talos-proxmox-updated"

// registerUpdateHook registers the hook that records which VMs the engine has updated, or in a preview would update,
// before it continues with what depends on them.
func (m *machineLookup) registerUpdateHook(ctx *pulumi.Context) (*pulumi.ResourceHook, error) {
	hook, err := ctx.RegisterResourceHook(updateHook, func(args *pulumi.ResourceHookArgs) error {
		m.updated.Store(numberAt(args.NewInputs, "vmId"), true)

		return nil
	}, &pulumi.ResourceHookOptions{OnDryRun: true})
	if err != nil {
		return nil, fmt.Errorf("unable to register the hook for updates of VMs: %w", err)
	}

	return hook, nil
}

// vmidHolder returns the machine that has a VMID; nil = Proxmox does not answer.
func (m *machineLookup) vmidHolder(ctx *pulumi.Context, vmid int) *errorhints.Holder {
	machine, err := m.proxmox.Find(ctx.Context(), "", vmid)
	if err != nil {
		return nil
	}

	owner, _ := ownership.OwnerOf(string(machine.Config["description"]))

	return &errorhints.Holder{
		Name:  string(machine.Config["name"]),
		Host:  machine.Host,
		Owner: owner.String(),
		Ours:  owner.Matches(m.owner),
		Lost:  owner.IsLost(m.owner, m.isBlank),
	}
}
