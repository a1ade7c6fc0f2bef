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
	last               map[int]vmlookup.State    // the results of the last run, by VMID
	known              map[int]ownership.Machine // the machines of the state, by VMID
	verified           proxmoxapi.Verified       // what Proxmox had of them when the run began
	healthyGenerations map[string]string         // when clusters were healthy, by machine name
	planned            map[int]vmdiff.Machine    // by VMID
	updated            sync.Map                  // VMIDs of VMs that this run has updated
	changed            sync.Map                  // VMIDs of VMs that this run has created or updated
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

	machine, err := m.find(ctx, vm)

	var foreign *proxmoxapi.Foreign

	switch {
	case err == nil:
		seen.CreationID = machine.CreationID()

		if before := seen.Generation; before != "" && before != machine.Generation() {
			seen.Recreated++
		}

		seen.Generation = machine.Generation()
		seen.Configured = seen.Generation != "" && seen.Generation == m.healthyGenerations[vm.Name]

		if err := m.checkRollback(vm, machine); err != nil {
			return seen, m.failures.add(err)
		}

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
	case errors.As(err, &foreign):
		return seen, m.failures.add(errors.New(foreign.Explain(m.owner.Stack())))
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

// find returns a machine as it was when the run began; one that the run has created or changed is read again, and one
// that was off, which its host may have started since.
func (m *machineLookup) find(ctx context.Context, vm vmlookup.VM) (proxmoxapi.Machine, error) {
	_, changed := m.changed.Load(vm.VMID)
	if machine, verified := m.verified.Own[vm.VMID]; verified && !changed && !machine.Stopped {
		return machine, nil
	}

	if known, existed := m.known[vm.VMID]; existed {
		return m.proxmox.FindOwn(ctx, vm.Host, known, m.owner)
	}

	return m.proxmox.Find(ctx, vm.Host, vm.VMID)
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

// Names of hooks in the state; they must not change.
const (
	updateHook = "talos-proxmox-updated"
	createHook = "talos-proxmox-created"
)

// registerHooks registers the hooks that record which VMs the engine has created or updated, or in a preview would
// update, before it continues with what depends on them.
func (m *machineLookup) registerHooks(ctx *pulumi.Context) (*pulumi.ResourceHookBinding, error) {
	updated, err := ctx.RegisterResourceHook(updateHook, func(args *pulumi.ResourceHookArgs) error {
		m.updated.Store(numberAt(args.NewInputs, "vmId"), true)

		if !m.preview {
			m.changed.Store(numberAt(args.NewInputs, "vmId"), true)
		}

		return nil
	}, &pulumi.ResourceHookOptions{OnDryRun: true})
	if err != nil {
		return nil, fmt.Errorf("unable to register the hook for updates of VMs: %w", err)
	}

	created, err := ctx.RegisterResourceHook(createHook, func(args *pulumi.ResourceHookArgs) error {
		m.changed.Store(numberAt(args.NewInputs, "vmId"), true)

		return nil
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("unable to register the hook for new VMs: %w", err)
	}

	return &pulumi.ResourceHookBinding{
		AfterCreate: []*pulumi.ResourceHook{created}, AfterUpdate: []*pulumi.ResourceHook{updated},
	}, nil
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
