package components

import (
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/problem"
)

// GPUWorkerType is the type token of [GPUWorker].
const GPUWorkerType = "talos-proxmox:node:GPUWorker"

// GPUWorkerArgs describe a node with GPUs.
type GPUWorkerArgs struct {
	// The node, without its GPUs.
	Node TalosNodeArgs `pulumi:"node"`
	// Its GPUs, from 1 to 16.
	GPUs []GPU `pulumi:"gpus"`
	// Flavour and track of the NVIDIA driver in its image, such as open production.
	Driver string `pulumi:"driver"`
}

// GPU is a GPU of a machine.
type GPU struct {
	// The name of its kind; GPUs of the same kind share it.
	Name string `pulumi:"name"`
	// The Proxmox host that has it. Default: the machine's.
	Host string `pulumi:"host,optional"`
	// Its PCI address: 0000:01:00 for all functions of the device, 0000:01:00.0 for one.
	PCI string `pulumi:"pci"`
	// Its architecture, such as ada; the health gate runs again when it changes. Default: none.
	Generation string `pulumi:"generation,optional"`
	// The name of its PCI mapping, the output name of a PCIMapping. Default: none, it is passed through by its address,
	// which only root@pam may do.
	Mapping pulumi.StringInput `pulumi:"mapping,optional"`
}

// GPUWorker is a node with GPUs: a [TalosNode] with PCI passthrough, cloned from a template with NVIDIA's driver. A
// control plane with a GPU is a GPUWorker as well.
type GPUWorker struct {
	pulumi.ResourceState

	// The names of the machine's GPUs, one for each device.
	GPUs pulumi.StringArrayOutput `pulumi:"gpus"`
	// Flavour and track of their driver.
	Driver pulumi.StringOutput `pulumi:"driver"`

	// Node is the node itself.
	Node *TalosNode
}

// NewGPUWorker creates the node. It waits for the mappings of its GPUs and the preparation of its host: a machine does
// not start without its devices.
func NewGPUWorker(
	ctx *pulumi.Context, name string, args GPUWorkerArgs, opts ...pulumi.ResourceOption,
) (*GPUWorker, error) {
	return newGPUWorker(ctx, name, args, clusterOptions{}, opts...)
}

func newGPUWorker(
	ctx *pulumi.Context, name string, args GPUWorkerArgs, options clusterOptions, opts ...pulumi.ResourceOption,
) (*GPUWorker, error) {
	if err := args.validate(name); err != nil {
		return nil, err
	}

	names := make([]string, 0, len(args.GPUs))
	for _, gpu := range args.GPUs {
		names = append(names, gpu.Name)
	}

	c := &GPUWorker{
		GPUs: pulumi.ToStringArray(names).ToStringArrayOutput(), Driver: pulumi.String(args.Driver).ToStringOutput(),
	}

	return register(ctx, GPUWorkerType, "GPU worker", name, c, opts, step{"the node of ", func() error {
		return c.registerNode(ctx, name, args, options, opts...)
	}})
}

// registerNode aliases the node to a child of the component's parent, which it was before it had a GPU.
func (c *GPUWorker) registerNode(
	ctx *pulumi.Context, name string, args GPUWorkerArgs, options clusterOptions, componentOpts ...pulumi.ResourceOption,
) (err error) {
	opts := []pulumi.ResourceOption{pulumi.Parent(c)}
	if component, err := pulumi.NewResourceOptions(componentOpts...); err == nil && component.Parent != nil {
		opts = append(opts, pulumi.Aliases([]pulumi.Alias{{Parent: component.Parent}}))
	}

	c.Node, err = newTalosNode(ctx, name, args.node(), options, opts...)

	return err
}

// maxGPUs is how many PCI devices a VM in Proxmox can have.
const maxGPUs = 16

// node returns the node's arguments with its GPUs as PCI devices.
func (a GPUWorkerArgs) node() TalosNodeArgs {
	n := a.Node
	n.Machine.PCIDevices = slices.Clone(n.Machine.PCIDevices)

	for _, gpu := range a.GPUs {
		device := PCIDevice{Mapping: gpu.Mapping}
		if gpu.Mapping == nil {
			device.ID = gpu.PCI
		}

		n.Machine.PCIDevices = append(n.Machine.PCIDevices, device)
	}

	return n
}

func (a GPUWorkerArgs) validate(name string) error {
	found := &problem.List{}
	validateGPUs("", a.GPUs, a.Driver, a.Node.Machine.Host, found)

	return problemsOf("GPU worker", name, found)
}

func validateGPUs(path string, gpus []GPU, driver, node string, found *problem.List) {
	if len(gpus) == 0 || len(gpus) > maxGPUs {
		found.Add(path+"gpus", nil, "there are %d; use 1 to %d", len(gpus), maxGPUs)
	}

	required(found, path+"driver", driver, "which of NVIDIA's drivers its image has, such as open production")

	for i, gpu := range gpus {
		if gpu.Host != "" && gpu.Host != node {
			found.Add(fmt.Sprintf("%sgpus[%d].host", path, i), nil,
				"%s is on host %q, and the machine on %q; place it where its GPU is", gpu.Name, gpu.Host, node)
		}

		if gpu.Mapping == nil {
			required(found, fmt.Sprintf("%sgpus[%d].pci", path, i), gpu.PCI, "its PCI address, or pass the name of its mapping")
		}
	}
}
