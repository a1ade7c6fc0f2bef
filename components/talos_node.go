package components

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// TalosNodeType is the type token of [TalosNode].
const TalosNodeType = tokens.TalosNode

// Roles of nodes.
const (
	RoleControlPlane = string(spec.RoleControlPlane)
	RoleWorker       = string(spec.RoleWorker)
)

// TalosNodeArgs describe a node: its VM and its machine configuration.
type TalosNodeArgs struct {
	// The name of the VM and of the Kubernetes node. Default: the resource's name.
	Name string `pulumi:"name,optional"`
	// The name of its cluster, for the VM's description.
	Cluster string `pulumi:"cluster,optional"`
	// controlplane or worker. Default: worker.
	Role string `pulumi:"role,optional"`
	// The VM.
	Machine Machine `pulumi:"machine"`
	// The network of its first network device. Default: untagged on vmbr0, without a router.
	Network *Network `pulumi:"network,optional"`
	// The node's address with its prefix length, 10.0.0.10/24; with DHCP the reserved one.
	Address pulumi.StringInput `pulumi:"address"`
	// The generated machine configuration for the node's role, from talos:machine:getConfiguration; secret.
	Configuration pulumi.StringInput `pulumi:"configuration" provider:"secret"`
	// Strategic-merge patches of the node, one YAML document each. Default: none.
	Patches pulumi.StringArrayInput `pulumi:"patches,optional"`
	// The Talos client configuration of the cluster's secrets; not used for a machine without configuration.
	Client TalosClient `pulumi:"client"`
	// Protect the VM against deletion. Default: false.
	Protect bool `pulumi:"protect,optional"`
	// How many seconds the machine may take to answer and apply its configuration. Default: 600.
	AnswersWithin float64 `pulumi:"answersWithin,optional"`
}

// TalosClient are the client credentials of the Talos API, from talos:machine:Secrets.
type TalosClient struct {
	// The certificate of the cluster's Talos authority, base64.
	CACertificate pulumi.StringInput `pulumi:"caCertificate"`
	// The client's certificate, base64.
	ClientCertificate pulumi.StringInput `pulumi:"clientCertificate"`
	// The client's key, base64, secret.
	ClientKey pulumi.StringInput `pulumi:"clientKey" provider:"secret"`
}

func (t TalosClient) configuration() machine.ClientConfigurationInput {
	return machine.ClientConfigurationArgs{
		CaCertificate: t.CACertificate, ClientCertificate: t.ClientCertificate, ClientKey: t.ClientKey,
	}
}

// clusterOptions are the settings of a node that its cluster decides.
type clusterOptions struct {
	// The resources that the VM and the machine configuration depend on.
	vmDependsOn, configurationDependsOn []pulumi.Resource
	// updateAfter are outputs of other nodes that updates of an existing node wait for.
	updateAfter []pulumi.Input
	// rollout makes disruptive updates one node at a time; nil = at any time.
	rollout *rollout
	// grantAccess registers the permissions of the cluster's software on the VM, before the configuration; nil = none.
	grantAccess func(*TalosNode) ([]pulumi.Resource, error)
	// client is the cluster's Talos client; nil = the client of the arguments.
	client machine.ClientConfigurationInput
	// ignoreChanges are the inputs of the configuration whose changes are not applied.
	ignoreChanges []string
	// unreachable says that the machine does not answer and that the run continues without it.
	unreachable bool
}

func (o clusterOptions) updateOptions() pulumi.ResourceOption {
	if o.rollout == nil {
		return waitFor(o.updateAfter...)
	}

	return pulumi.Composite(waitFor(o.updateAfter...), o.rollout.updateHooks)
}

// TalosNode is a VM cloned from a template, with its machine configuration.
type TalosNode struct {
	pulumi.ResourceState

	// The VMID.
	VMID pulumi.IntOutput `pulumi:"vmid"`
	// The VM's name.
	VMName pulumi.StringOutput `pulumi:"vmName"`
	// The name of the Proxmox host.
	Host pulumi.StringOutput `pulumi:"node"`
	// The node's address.
	Address pulumi.StringOutput `pulumi:"address"`
	// The MAC address of the first network device.
	MAC pulumi.StringOutput `pulumi:"mac"`
	// The machine's generation (vmgenid), which identifies recreated and restored machines; set only by the program that
	// reads stack files.
	Generation pulumi.StringPtrOutput `pulumi:"generation"`
	// The machine's creation id, by which the stack recognizes it: the UUID of its SMBIOS, which every creation renews and
	// rollbacks keep; set only by the program that reads stack files.
	CreationID pulumi.StringPtrOutput `pulumi:"creationId"`
	// How many runs updated the VM; an update runs the health gate again.
	Updates pulumi.IntOutput `pulumi:"updates"`
	// How many runs found a recreated machine; for control planes, that runs the bootstrap again.
	Recreations pulumi.IntOutput `pulumi:"remade"`

	vm            *vm.VirtualMachine
	lookup        pulumi.Output // a [vmlookup.Seen]
	configuration *machine.ConfigurationApply
}

// NewTalosNode creates the VM and applies its machine configuration. Its sizes are changed in place; a new template
// version does not affect it.
func NewTalosNode(
	ctx *pulumi.Context, name string, args TalosNodeArgs, opts ...pulumi.ResourceOption,
) (*TalosNode, error) {
	return newTalosNode(ctx, name, args, clusterOptions{}, opts...)
}

func newTalosNode(
	ctx *pulumi.Context, name string, args TalosNodeArgs, options clusterOptions, opts ...pulumi.ResourceOption,
) (*TalosNode, error) {
	args = args.withDefaults(name)
	if err := args.validate(name); err != nil {
		return nil, err
	}

	if options.client == nil {
		options.client = args.Client.configuration()
	}

	c := &TalosNode{}

	return register(ctx, TalosNodeType, "node", name, c, opts,
		step{"the VM of ", func() error { return c.registerVM(ctx, name, args, options) }},
		step{"the permissions on the VM of ", func() error {
			if options.grantAccess == nil {
				return nil
			}

			permissions, err := options.grantAccess(c)
			options.configurationDependsOn = append(slices.Clone(options.configurationDependsOn), permissions...)

			return err
		}},
		step{"the machine configuration of ", func() error { return c.registerConfiguration(ctx, name, args, options) }},
	)
}

func (c *TalosNode) registerVM(
	ctx *pulumi.Context, name string, args TalosNodeArgs, options clusterOptions,
) (err error) {
	c.vm, err = registerVM(ctx, name, vmSpec{
		name:           args.Name,
		description:    ownership.NodeAbout(args.Role, args.Name, args.Cluster),
		machine:        args.Machine,
		network:        *args.Network,
		hardware:       talosHardware,
		agentTimeout:   "2s", // nothing needs the agent's answer
		initialization: args.initialization(),
		protect:        args.Protect,
	}, nil, pulumi.Parent(c), pulumi.DependsOn(options.vmDependsOn), options.updateOptions())
	if err != nil {
		return err
	}

	query := vmlookup.VM{Name: args.Name, VMID: args.Machine.VMID, Unreachable: options.unreachable}
	if options.rollout != nil {
		query.InTurn = func(restart func() error) error { return options.rollout.restart(c.vm, args.Name, restart) }
	}

	c.lookup = lookUpVM(ctx, c.vm, query)
	seen := newLookupOutputs(c.lookup)
	c.Generation, c.CreationID, c.Updates, c.Recreations = seen.generation, seen.creationID, seen.updates, seen.remade
	c.VMID, c.VMName, c.Host = c.vm.VmId, c.vm.Name, c.vm.NodeName
	// From the plan: the provider would query the guest agent, which Talos may not have.
	c.Address = args.address()
	c.MAC = pulumi.String(args.Machine.MAC).ToStringOutput()

	return nil
}

func (c *TalosNode) registerConfiguration(
	ctx *pulumi.Context, name string, args TalosNodeArgs, options clusterOptions,
) error {
	hook, err := c.registerAnswerHook(ctx, name, args)
	if err != nil {
		return err
	}

	// Without timeouts, which means ten minutes: the published provider applies, then fails to save a state that has them
	// (pulumiverse/pulumi-talos#208).
	c.configuration, err = machine.NewConfigurationApply(ctx, name+tokens.OfConfiguration, &machine.ConfigurationApplyArgs{
		ApplyMode:                 pulumi.String("auto"),
		ClientConfiguration:       options.client,
		ConfigPatches:             args.Patches,
		Endpoint:                  args.address(),
		MachineConfigurationInput: args.Configuration,
		Node:                      args.address(),
	},
		pulumi.Parent(c),
		pulumi.DependsOn(append([]pulumi.Resource{c.vm}, options.configurationDependsOn...)),
		hook,
		options.updateOptions(), // after the wait for the machine
		pulumi.IgnoreChanges(options.ignoreChanges),
		// A new VM has no configuration. The trigger covers VMs that Pulumi did not replace: one that was removed and created
		// again, and one that was restored or rolled back, which has the configuration of that time.
		pulumi.ReplaceWith([]pulumi.Resource{c.vm}),
		pulumi.ReplacementTrigger(c.Generation))

	return err
}

func (a TalosNodeArgs) address() pulumi.StringOutput { return withoutPrefixLength(a.Address) }

func withoutPrefixLength(address pulumi.StringInput) pulumi.StringOutput {
	return address.ToStringOutput().ApplyT(func(text string) (string, error) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return "", fmt.Errorf("address: %q is not an address with its prefix length; use one such as 10.0.0.10/24", text)
		}

		return prefix.Addr().String(), nil
	}).(pulumi.StringOutput)
}

func (a TalosNodeArgs) withDefaults(name string) TalosNodeArgs {
	setDefault(&a.Name, name)
	setDefault(&a.Role, RoleWorker)
	setDefault(&a.AnswersWithin, defaultAnswerTimeout.Seconds())
	a.Machine = a.Machine.withDefaults()
	a.Network = new(orZero(a.Network).withDefaults())

	return a
}

func (a TalosNodeArgs) validate(name string) error {
	found := &problem.List{}
	if a.Role != RoleControlPlane && a.Role != RoleWorker {
		found.Add("role", a.Role, "is neither controlplane nor worker; choose one")
	}

	a.Machine.validate("machine.", found)
	a.Machine.validateOrigin("machine.", found)
	a.Network.validate("network.", found)

	if a.Address == nil {
		found.Add("address", nil, "is missing; set it with its prefix length, or the one the router reserves")
	}

	if a.Configuration == nil {
		found.Add("configuration", nil, "is missing; pass what talos:machine:getConfiguration returns")
	}

	return problemsOf("node", name, found)
}
