package components

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tlsprobe"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// changeInterval is short because all other machines wait.
const changeInterval = "1s"

// rollout changes the running machines of a cluster one at a time. Hooks of their resources call it before and after an
// update; creation is not affected.
type rollout struct {
	ctx                             *pulumi.Context
	common                          request.Common
	talosconfig                     pulumi.StringOutput
	bootstrapped                    bool // true also if it is not known
	leaseLost                       *atomic.Pointer[error]
	targets                         map[string]updateTarget // by resource name
	turn                            chan struct{}           // holds a value while no machine is being changed
	prove                           func(*pulumi.ResourceHookArgs, updateTarget) error
	updateHooks, configurationHooks pulumi.ResourceOption

	mu         sync.Mutex
	lookups    map[string]pulumi.Output         // of machines, by the name of their configurations
	sessions   map[string]*talosopsexec.Session // open, by resource name; nil for one that only has its turn
	failedNode string                           // the first node whose change failed
}

// updateTarget is the machine that the update of a resource changes.
type updateTarget struct {
	machine tlsprobe.Machine
	worker  bool
	isVM    bool // the resource is the VM, not its configuration
}

func newRollout(
	ctx *pulumi.Context, name string, args TalosClusterArgs, talosconfig pulumi.StringOutput,
	leaseLost *atomic.Pointer[error],
) (*rollout, error) {
	r := &rollout{
		ctx: ctx, common: args.commonRequest(ctx), talosconfig: talosconfig, leaseLost: leaseLost,
		targets: map[string]updateTarget{}, turn: make(chan struct{}, 1), sessions: map[string]*talosopsexec.Session{},
		lookups: map[string]pulumi.Output{},
	}
	r.prove = r.requireProven

	r.turn <- struct{}{}

	bootstrapped, known := vmlookup.FromContext(ctx).WasBootstrapped(args.Name)
	r.bootstrapped = bootstrapped || !known

	nodes := args.nodes()
	for i, node := range nodes {
		target := updateTarget{machine: probeTarget(node, args.network(node)), worker: i >= args.controlPlaneCount()}
		r.targets[node.Name+tokens.OfConfiguration] = target
		target.isVM = true
		r.targets[node.Name+tokens.OfVM] = target
	}

	before, err := ctx.RegisterResourceHook(name+"-change", r.beforeUpdate, nil)
	if err != nil {
		return nil, err
	}

	after, err := ctx.RegisterResourceHook(name+"-changed", func(called *pulumi.ResourceHookArgs) error {
		return r.afterUpdate(called.Name, true)
	}, nil)
	if err != nil {
		return nil, err
	}

	failed, err := ctx.RegisterErrorHook(name+"-unchanged", func(called *pulumi.ErrorHookArgs) (bool, error) {
		return false, r.afterUpdate(called.Name, false)
	})
	if err != nil {
		return nil, err
	}

	binding := pulumi.ResourceHookBinding{
		BeforeUpdate: []*pulumi.ResourceHook{before},
		AfterUpdate:  []*pulumi.ResourceHook{after},
		OnError:      []*pulumi.ErrorHook{failed},
	}
	r.updateHooks = pulumi.ResourceHooks(&binding)

	ofConfiguration := binding
	ofConfiguration.BeforeCreate, ofConfiguration.AfterCreate = binding.BeforeUpdate, binding.AfterUpdate
	r.configurationHooks = pulumi.ResourceHooks(&ofConfiguration)

	return r, nil
}

// configurationRequest returns the part of requests that the configurations of nodes share.
func (r *rollout) configurationRequest() request.Common {
	common := r.common
	common.Bootstrapped, common.Interval = r.bootstrapped, changeInterval

	return common
}

// expectLookup has the configuration of this name wait for its turn if its machine is configured already.
func (r *rollout) expectLookup(configuration string, lookup pulumi.Output) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.lookups[configuration] = lookup
}

// isConfigured reports whether the machine of a configuration was configured before it is applied; false for one that
// is skipped.
func (r *rollout) isConfigured(called *pulumi.ResourceHookArgs) (bool, error) {
	if len(called.OldInputs) > 0 { // an update; for another machine the engine replaces the resource
		return true, nil
	}

	r.mu.Lock()
	lookup := r.lookups[called.Name]
	r.mu.Unlock()

	if lookup == nil {
		return false, nil
	}

	result, err := internals.UnsafeAwaitOutput(r.ctx.Context(), lookup)
	if err != nil {
		return false, fmt.Errorf("unable to read the VM of %s: %w", r.targets[called.Name].machine.Name, err)
	}

	return result.Value.(vmlookup.State).Configured, nil
}

// beforeUpdate waits for a machine's turn, and for a VM until the cluster allows its change; `talosops apply` waits for
// that itself.
func (r *rollout) beforeUpdate(called *pulumi.ResourceHookArgs) error {
	target := r.targets[called.Name]
	if target.isVM && !restarts(called.OldInputs, called.NewInputs) {
		return nil
	}

	if !target.isVM {
		if configured, err := r.isConfigured(called); err != nil || !configured {
			return err
		}
	}

	if err := r.acquireTurn(target); err != nil {
		return err
	}

	var (
		session *talosopsexec.Session
		err     error
	)

	switch {
	case target.isVM:
		session, err = r.prepare(called, target)
	case len(called.OldInputs) == 0:
		err = r.prove(called, target)
	}

	if err != nil {
		return r.releaseTurn(target, err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.sessions[called.Name] = session

	return nil
}

// requireProven refuses a machine that was configured and does not prove what it is. A configuration that is replaced
// without a change keeps the request of the run that created it, from before the machine was configured.
func (r *rollout) requireProven(called *pulumi.ResourceHookArgs, target updateTarget) error {
	talosconfig, err := internals.UnsafeAwaitOutput(r.ctx.Context(), r.talosconfig)
	if err != nil {
		return fmt.Errorf("unable to read the talosconfig: %w", err)
	}

	text, _ := talosconfig.Value.(string)

	authority, err := talos.TalosconfigAuthority(text)
	if err != nil {
		return err
	}

	return awaitConfigured(r.ctx, called.URN, target.machine, authority)
}

// acquireTurn waits for a machine's turn, which [rollout.releaseTurn] ends.
func (r *rollout) acquireTurn(target updateTarget) error {
	select {
	case <-r.turn:
	case <-r.ctx.Context().Done():
		return r.ctx.Context().Err()
	}

	if failed := r.firstFailure(); failed != "" {
		r.turn <- struct{}{}

		return fmt.Errorf("%s is not changed, because the change of %s failed; the next `pulumi up` continues",
			target.machine.Name, failed)
	}

	if err := r.leaseLost.Load(); err != nil {
		return r.releaseTurn(target, fmt.Errorf("%s is not changed: %w", target.machine.Name, *err))
	}

	return nil
}

// prepare has talosops prepare a machine for the update of its VM.
func (r *rollout) prepare(called *pulumi.ResourceHookArgs, target updateTarget) (*talosopsexec.Session, error) {
	return r.startSession(&resourceRow{urn: called.URN}, target, request.Change{
		Off: isOff(called.OldOutputs, func() bool {
			return vmlookup.FromContext(r.ctx).IsStopped(r.ctx.Context(), target.machine.Host, target.machine.VMID)
		}),
		Former: previousAddress(called.OldInputs, target),
	})
}

// startSession calls talosops and returns once the machine is ready for its change. Progress is shown in the resource's
// row.
func (r *rollout) startSession(
	row pulumi.Resource, target updateTarget, req request.Change,
) (*talosopsexec.Session, error) {
	talosconfig, err := internals.UnsafeAwaitOutput(r.ctx.Context(), r.talosconfig)
	if err != nil {
		return nil, fmt.Errorf("unable to read the talosconfig: %w", err)
	}

	req.Common, req.Node, req.Worker, req.Restart = r.common, request.NodeOf(target.machine), target.worker, target.isVM
	req.Bootstrapped, req.Interval = r.bootstrapped, changeInterval
	req.Force = os.Getenv(request.ForceVariable) != ""
	req.Talosconfig, _ = talosconfig.Value.(string)

	progress := pulumi.LogArgs{Resource: row, Ephemeral: true}

	session, err := talosopsexec.Start(r.ctx, "change", req, func(text string) { _ = r.ctx.Log.Info(text, &progress) })
	if err != nil {
		return nil, err
	}

	var ready request.Ready

	return session, session.Receive(&ready)
}

// restart restarts a machine in its turn, if no update of this run restarts its VM.
func (r *rollout) restart(vm pulumi.Resource, name string, restartVM func() error) error {
	target := r.targets[name+tokens.OfVM]
	if err := r.acquireTurn(target); err != nil {
		return err
	}

	session, err := r.startSession(vm, target, request.Change{})
	if err == nil {
		err = restartVM()
		err = errors.Join(err, session.Finish(request.Outcome{Changed: err == nil}))
	}

	if err != nil { // logged before the errors of other machines, which may end the run
		_ = r.ctx.Log.Error(err.Error(), &pulumi.LogArgs{Resource: vm})
	}

	return r.releaseTurn(target, err)
}

// afterUpdate has talosops wait until a machine is back, if its change has begun.
func (r *rollout) afterUpdate(name string, changed bool) error {
	r.mu.Lock()
	session, hasTurn := r.sessions[name]
	delete(r.sessions, name)
	r.mu.Unlock()

	if !hasTurn {
		return nil
	}

	var err error
	if session != nil {
		err = session.Finish(request.Outcome{Changed: changed})
	}

	if err == nil && !changed {
		return r.releaseTurn(r.targets[name], errProviderRefused)
	}

	return r.releaseTurn(r.targets[name], err)
}

// errProviderRefused stands for the provider's error, which the engine shows.
var errProviderRefused = errors.New("its provider refused the change")

// releaseTurn gives the turn to the next machine. After an error, no other machine is changed.
func (r *rollout) releaseTurn(target updateTarget, err error) error {
	r.mu.Lock()
	if err != nil && r.failedNode == "" {
		r.failedNode = target.machine.Name
	}
	r.mu.Unlock()

	r.turn <- struct{}{}

	if errors.Is(err, errProviderRefused) {
		return nil
	}

	return err
}

func (r *rollout) firstFailure() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.failedNode
}
