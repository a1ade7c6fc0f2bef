package components

import (
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// GPUWorkerType is the type token of [GPUWorker].
const GPUWorkerType = "talos-proxmox:node:GPUWorker"

// GPUWorker is a node with GPUs: a [TalosNode] that has them passed through, made from a template with NVIDIA's driver. A control plane with a GPU is one too.
type GPUWorker struct {
	pulumi.ResourceState

	// GPUs are the names of the machine's GPUs, one for each device; Driver is their driver's flavour and track.
	GPUs   pulumi.StringArrayOutput `pulumi:"gpus"`
	Driver pulumi.StringOutput      `pulumi:"driver"`

	Node *TalosNode
}

// NewGPUWorker makes the node. The arguments' MadeAfter has to hold the mappings of its GPUs and what its host's preparation ends with: a machine whose device is
// not there yet does not start.
func NewGPUWorker(ctx *pulumi.Context, name string, args TalosNodeArgs, opts ...pulumi.ResourceOption) (*GPUWorker, error) {
	if err := validateGPUs(args); err != nil {
		return nil, fmt.Errorf("GPU worker %q: %w", name, err)
	}

	c := &GPUWorker{}
	if err := ctx.RegisterComponentResource(GPUWorkerType, name, c, opts...); err != nil {
		return nil, fmt.Errorf("unable to register GPU worker %q: %w", name, err)
	}

	// A node that had no GPU before was its owner's own child.
	own := []pulumi.ResourceOption{pulumi.Parent(c)}
	if given, err := pulumi.NewResourceOptions(opts...); err == nil && given.Parent != nil {
		own = append(own, pulumi.Aliases([]pulumi.Alias{{Parent: given.Parent}}))
	}
	var err error
	if c.Node, err = NewTalosNode(ctx, name, args, own...); err != nil {
		return nil, err
	}

	names := make([]string, 0, len(args.Node.GPUs))
	for _, gpu := range args.Node.GPUs {
		names = append(names, gpu.Name)
	}
	driver := args.Node.Template.Driver
	c.GPUs = pulumi.ToStringArray(names).ToStringArrayOutput()
	c.Driver = pulumi.String(driver.Flavour + " " + driver.Track).ToStringOutput()
	if err := ctx.RegisterResourceOutputs(c, pulumi.Map{"gpus": c.GPUs, "driver": c.Driver}); err != nil {
		return nil, fmt.Errorf("unable to register the outputs of GPU worker %q: %w", name, err)
	}

	return c, nil
}

// mostGPUs is how many devices a VM of Proxmox can have.
const mostGPUs = 16

func validateGPUs(args TalosNodeArgs) error {
	n := args.Node
	var problems []error
	if len(n.GPUs) == 0 || len(n.GPUs) > mostGPUs {
		problems = append(problems, fmt.Errorf("%d GPUs: state from 1 to %d", len(n.GPUs), mostGPUs))
	}
	if len(n.Template.Driver.Extensions) == 0 {
		problems = append(problems, errors.New("its template has no NVIDIA driver: make it from one that has"))
	}
	for _, gpu := range n.GPUs {
		if gpu.Host != n.Host {
			problems = append(problems, fmt.Errorf("its GPU %s is on host %q, and the machine on %q: place it where its GPU is", gpu.Name, gpu.Host, n.Host))
		}
	}

	return errors.Join(problems...)
}
