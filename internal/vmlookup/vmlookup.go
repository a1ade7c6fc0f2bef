// Package vmlookup passes what a run knows about its machines to components, in the context with which they are created
// instead of in their arguments: the program decides how to query Proxmox.
package vmlookup

import (
	"context"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// VM is a node's VM, on the host in its resource.
type VM struct {
	Name, Host string
	VMID       int
	// Unreachable reports whether the machine does not answer and its cluster works without it: it may be off.
	Unreachable bool
	// InTurn runs a change that restarts the machine, once its cluster tolerates that and its node is drained. Nil = a
	// machine without a cluster.
	InTurn func(restart func() error) error
}

// State is the state of a VM.
type State struct {
	// Generation identifies the machine: it changes when the VM is recreated, restored or rolled back, and the
	// configuration is then applied again; empty = unknown.
	Generation string
	// CreationID identifies the machine from its creation to its deletion, rollbacks included; empty = unknown.
	CreationID string
	// Updates counts the runs that updated the VM, Recreated those that found another generation.
	Updates, Recreated int
	// Configured reports whether it is still the machine with which its cluster was last healthy, so it has a
	// configuration.
	Configured bool
}

// Func looks up a VM. It returns an error if the VM differs from the plan.
type Func func(ctx context.Context, vm VM) (State, error)

// Run is what the program knows about its run. The zero value, as in other programs, knows nothing.
type Run struct {
	// Lookup looks up the nodes' VMs.
	Lookup Func
	// Stopped reports whether a machine is off at this moment.
	Stopped func(ctx context.Context, host string, vmid int) bool
	// Existed reports whether a machine existed before this run, and Bootstrapped whether a cluster was bootstrapped.
	Existed, Bootstrapped func(name string) bool
	// VersionChanges returns how often the planned versions of a cluster have changed.
	VersionChanges func(cluster string) int
	// Commands returns the command of talosops in the state, by the name of its resource.
	Commands func(name string) Command
	// Drift says how what a command of talosops made differs from its request in the state, by the name of its resource;
	// empty = it does not, or that is unknown.
	Drift func(name string) string
	// Configurations returns the machine configuration of a node in the state, a secret; empty = none.
	Configurations func(node string) string
	// StackID is the id of the stack, which markers contain.
	StackID string
}

type contextKey struct{}

// NewContext returns a context with the run.
func NewContext(ctx *pulumi.Context, run Run) *pulumi.Context {
	return ctx.WithValue(contextKey{}, run)
}

// FromContext returns the run of a context.
func FromContext(ctx *pulumi.Context) Run {
	run, _ := ctx.Value(contextKey{}).(Run)

	return run
}

// LookupVM looks up a node's VM.
func (r Run) LookupVM(ctx context.Context, vm VM) (State, error) {
	if r.Lookup == nil {
		return State{}, nil
	}

	return r.Lookup(ctx, vm)
}

// IsStopped reports whether a machine is off at this moment; true if unknown.
func (r Run) IsStopped(ctx context.Context, host string, vmid int) bool {
	return r.Stopped == nil || r.Stopped(ctx, host, vmid)
}

// HasExisted reports whether a machine existed before this run; false if unknown.
func (r Run) HasExisted(name string) bool { return r.Existed != nil && r.Existed(name) }

// WasBootstrapped reports whether a cluster was bootstrapped before this run, and whether that is known.
func (r Run) WasBootstrapped(cluster string) (begun, known bool) {
	return r.Bootstrapped != nil && r.Bootstrapped(cluster), r.Bootstrapped != nil
}

// VersionsTrigger returns what repeats the upgrades of a cluster when its planned versions change, even back to those
// of the state: an upgrade may have been cut off; nil if they never changed, or that is unknown.
func (r Run) VersionsTrigger(cluster string) pulumi.StringInput {
	if r.VersionChanges == nil || r.VersionChanges(cluster) == 0 {
		return nil
	}

	return pulumi.Sprintf("change %d of versions", r.VersionChanges(cluster))
}

// Command is a command of talosops in the state.
type Command struct {
	Request string // its standard input, a secret
	Follows string // the input that makes it run again
}

// Command returns the command of this name in the state, or the zero value.
func (r Run) Command(name string) Command {
	if r.Commands == nil {
		return Command{}
	}

	return r.Commands(name)
}

// CommandDrift says how what a command made differs from its request in the state; empty if it does not, or unknown.
func (r Run) CommandDrift(name string) string {
	if r.Drift == nil {
		return ""
	}

	return r.Drift(name)
}

// Configuration returns the machine configuration of a node in the state, a secret; empty if there is none.
func (r Run) Configuration(node string) string {
	if r.Configurations == nil {
		return ""
	}

	return r.Configurations(node)
}
