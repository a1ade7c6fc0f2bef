// Package look says what is known of a node's VM once a run has done with it. Who asks Proxmox is the program's: it is
// no argument of a component, but a value of the context that components are made with.
package look

import (
	"context"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// VM is a node's VM, on the host that its resource says it is on.
type VM struct {
	Name, Host string
	VMID       int
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

type key struct{}

// With returns a context whose nodes are looked at.
func With(ctx *pulumi.Context, look Func) *pulumi.Context { return ctx.WithValue(key{}, look) }

// Of returns who looks at the nodes of a context; without anybody, nothing is known of them.
func Of(ctx *pulumi.Context) Func {
	if look, ok := ctx.Value(key{}).(Func); ok {
		return look
	}

	return func(context.Context, VM) (Seen, error) { return Seen{}, nil }
}

type ranKey struct{}

// WithRan returns a context that knows which machines ran before this run, by their names.
func WithRan(ctx *pulumi.Context, ran func(name string) bool) *pulumi.Context {
	return ctx.WithValue(ranKey{}, ran)
}

// Ran says whether a machine ran before this run; where nobody knows, none did.
func Ran(ctx *pulumi.Context, name string) bool {
	ran, ok := ctx.Value(ranKey{}).(func(name string) bool)

	return ok && ran(name)
}

type stackKey struct{}

// WithStackID returns a context that knows the id of the stack, which the markers of what it makes have.
func WithStackID(ctx *pulumi.Context, id string) *pulumi.Context {
	return ctx.WithValue(stackKey{}, id)
}

// StackID is the id of the stack; programs of others have none, and their markers neither.
func StackID(ctx *pulumi.Context) string {
	id, _ := ctx.Value(stackKey{}).(string)

	return id
}

type begunKey struct{}

// WithBegun returns a context that knows which clusters were bootstrapped before this run, by their names.
func WithBegun(ctx *pulumi.Context, begun func(cluster string) bool) *pulumi.Context {
	return ctx.WithValue(begunKey{}, begun)
}

// Begun says whether a cluster was bootstrapped before this run, and whether that is known.
func Begun(ctx *pulumi.Context, cluster string) (begun, known bool) {
	of, known := ctx.Value(begunKey{}).(func(cluster string) bool)

	return known && of(cluster), known
}
