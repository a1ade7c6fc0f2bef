// Package vmlookup says what is known of a node's VM once a run has done with it. Who asks Proxmox is the program's:
// it is no argument of a component, but a value of the context that components are made with.
package vmlookup

import (
	"context"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// VM is a node's VM, on the host that its resource says it is on.
type VM struct {
	Name, Host string
	VMID       int
	// Silent says that its machine does not answer and its cluster lives without it: it may be off.
	Silent bool
	// InTurn makes a change that restarts the machine once its cluster can do without it, and drains its node before.
	// Nil = it is of no cluster.
	InTurn func(restart func() error) error
}

// Seen is what is known of a VM.
type Seen struct {
	// Generation says which machine the VM is: another one after it was recreated, restored or rolled back, whose
	// configuration is then applied again; empty = not known.
	Generation string
	// Updates counts the runs that updated the VM, Remade those that found another machine than before.
	Updates, Remade int
	// Configured says that it is still the machine that its cluster was healthy with, which has a configuration.
	Configured bool
}

// Func looks at a VM. The error is how it differs from what is planned.
type Func func(ctx context.Context, vm VM) (Seen, error)

// Run is what the program knows of its run; without it, as in programs of others, nothing is known.
type Run struct {
	// Look looks at the nodes' VMs.
	Look Func
	// Ran says whether a machine of this name ran before this run, and Begun whether a cluster was bootstrapped.
	Ran, Begun func(name string) bool
	// Calls are the commands of talosops that the last run left, by the names of resources.
	Calls func(name string) Call
	// StackID is the id of the stack, which the markers of what it makes have.
	StackID string
}

type key struct{}

// With returns a context that knows of the run.
func With(ctx *pulumi.Context, run Run) *pulumi.Context { return ctx.WithValue(key{}, run) }

// Of is what the context knows.
func Of(ctx *pulumi.Context) Run {
	run, _ := ctx.Value(key{}).(Run)

	return run
}

// LookAt looks at a node's VM.
func (r Run) LookAt(ctx context.Context, vm VM) (Seen, error) {
	if r.Look == nil {
		return Seen{}, nil
	}

	return r.Look(ctx, vm)
}

// HasRun says whether a machine ran before this run; where nobody knows, none did.
func (r Run) HasRun(name string) bool { return r.Ran != nil && r.Ran(name) }

// HasBegun says whether a cluster was bootstrapped before this run, and whether that is known.
func (r Run) HasBegun(cluster string) (begun, known bool) {
	return r.Begun != nil && r.Begun(cluster), r.Begun != nil
}

// Call is a command of talosops as the last run left it.
type Call struct {
	Request string // its standard input, a secret
	Follows string // what had it run again
}

// CallOf returns the command of this name that the last run left; where nobody knows, there was none.
func (r Run) CallOf(name string) Call {
	if r.Calls == nil {
		return Call{}
	}

	return r.Calls(name)
}
