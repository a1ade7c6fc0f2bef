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
	// Silent reports whether the machine does not answer and its cluster works without it: it may be off.
	Silent bool
	// InTurn runs a change that restarts the machine, once its cluster tolerates that and its node is drained. Nil = a
	// machine without a cluster.
	InTurn func(restart func() error) error
}

// Seen is the state of a VM.
type Seen struct {
	// Generation identifies the machine: it changes when the VM is recreated, restored or rolled back, and the
	// configuration is then applied again; empty = unknown.
	Generation string
	// Updates counts the runs that updated the VM, Remade those that found another generation.
	Updates, Remade int
	// Configured reports whether it is still the machine with which its cluster was last healthy, so it has a
	// configuration.
	Configured bool
}

// Func looks up a VM. It returns an error if the VM differs from the plan.
type Func func(ctx context.Context, vm VM) (Seen, error)

// Run is what the program knows about its run. The zero value, as in other programs, knows nothing.
type Run struct {
	// Look looks up the nodes' VMs.
	Look Func
	// Ran reports whether a machine existed before this run, and Begun whether a cluster was bootstrapped.
	Ran, Begun func(name string) bool
	// Calls returns the command of talosops in the state, by the name of its resource.
	Calls func(name string) Call
	// StackID is the id of the stack, which markers contain.
	StackID string
}

type contextKey struct{}

// With returns a context with the run.
func With(ctx *pulumi.Context, run Run) *pulumi.Context { return ctx.WithValue(contextKey{}, run) }

// Of returns the run of a context.
func Of(ctx *pulumi.Context) Run {
	run, _ := ctx.Value(contextKey{}).(Run)

	return run
}

// LookAt looks up a node's VM.
func (r Run) LookAt(ctx context.Context, vm VM) (Seen, error) {
	if r.Look == nil {
		return Seen{}, nil
	}

	return r.Look(ctx, vm)
}

// HasRun reports whether a machine existed before this run; false if unknown.
func (r Run) HasRun(name string) bool { return r.Ran != nil && r.Ran(name) }

// HasBegun reports whether a cluster was bootstrapped before this run, and whether that is known.
func (r Run) HasBegun(cluster string) (begun, known bool) {
	return r.Begun != nil && r.Begun(cluster), r.Begun != nil
}

// Call is a command of talosops in the state.
type Call struct {
	Request string // its standard input, a secret
	Follows string // the input that makes it run again
}

// CallOf returns the command of this name in the state, or the zero value.
func (r Run) CallOf(name string) Call {
	if r.Calls == nil {
		return Call{}
	}

	return r.Calls(name)
}
