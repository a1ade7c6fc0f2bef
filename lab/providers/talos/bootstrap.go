package talos

import (
	"context"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// bootstrapResource is machine/bootstrap:Bootstrap.
type bootstrapResource struct{}

type bootstrapArgs struct {
	ClientConfiguration clientConfiguration `pulumi:"clientConfiguration"`
	Endpoint            *string             `pulumi:"endpoint,optional"`
	Node                string              `pulumi:"node"`
	Timeouts            *timeouts           `pulumi:"timeouts,optional"`
}

type bootstrapState struct {
	ClientConfiguration clientConfiguration `pulumi:"clientConfiguration"`
	Endpoint            string              `pulumi:"endpoint"`
	Node                string              `pulumi:"node"`
	Timeouts            *timeouts           `pulumi:"timeouts,optional"`
}

// Annotate gives the resource its published token.
func (r *bootstrapResource) Annotate(a infer.Annotator) { a.SetToken("machine/bootstrap", "Bootstrap") }

// WireDependencies keeps the endpoint known that follows from a known node.
func (*bootstrapResource) WireDependencies(f infer.FieldSelector, _ *bootstrapArgs, state *bootstrapState) {
	if state.Endpoint != "" {
		f.OutputField(&state.Endpoint).AlwaysKnown()
	}
}

// Check refuses timeouts that are no durations.
func (*bootstrapResource) Check(ctx context.Context, request infer.CheckRequest) (infer.CheckResponse[bootstrapArgs], error) {
	args, failures, err := infer.DefaultCheck[bootstrapArgs](ctx, request.NewInputs)

	return infer.CheckResponse[bootstrapArgs]{Inputs: args, Failures: append(failures, args.Timeouts.check()...)}, err
}

func (args bootstrapArgs) state() bootstrapState {
	return bootstrapState{
		ClientConfiguration: args.ClientConfiguration, Endpoint: or(args.Endpoint, args.Node), Node: args.Node, Timeouts: args.Timeouts,
	}
}

// Create bootstraps etcd. Like the published provider it retries everything but a wrong request: on a cluster that has been bootstrapped before, it
// fails after its timeout with the machine's "AlreadyExists".
func (r *bootstrapResource) Create(ctx context.Context, request infer.CreateRequest[bootstrapArgs]) (infer.CreateResponse[bootstrapState], error) {
	state := request.Inputs.state()
	response := infer.CreateResponse[bootstrapState]{ID: "machine_bootstrap", Output: state}

	if request.DryRun {
		return response, nil
	}

	machineTarget := target{node: state.Node, endpoint: state.Endpoint, client: state.ClientConfiguration}
	err := machineTarget.retry(ctx, state.Timeouts.create(), "bootstrapping etcd", func(ctx context.Context, c *client.Client) error {
		return c.Bootstrap(ctx, &machine.BootstrapRequest{})
	})

	return response, err
}

// Update changes the state only.
func (r *bootstrapResource) Update(_ context.Context, request infer.UpdateRequest[bootstrapArgs, bootstrapState]) (infer.UpdateResponse[bootstrapState], error) {
	return infer.UpdateResponse[bootstrapState]{Output: request.Inputs.state()}, nil
}
