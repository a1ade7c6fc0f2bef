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

// turn is a node's place among the nodes of its cluster.
type turn struct {
	// madeAfter are the VMs before its own, and appliedAfter the configurations.
	madeAfter, appliedAfter []pulumi.Resource
	// updatedAfter are the VM and the configuration of other nodes before those of a node that runs.
	updatedAfter []pulumi.Input
	// rollout has changes of the node wait for those of others; nil = they do not.
	rollout *rollout
	// admitted are what the node's software may do on its machine, which is given before its configuration; nil = nothing.
	admitted func(*TalosNode) ([]pulumi.Resource, error)
	// client is the cluster's as a whole; nil = the one of the arguments.
	client machine.ClientConfigurationInput
	// keeps are the inputs of its configuration that stay as they were applied last.
	keeps []string
	// silent says that its machine does not answer, and that the run goes on without it.
	silent bool
}

func (t turn) options() pulumi.ResourceOption {
	if t.rollout == nil {
		return waitFor(t.updatedAfter...)
	}

	return pulumi.Composite(waitFor(t.updatedAfter...), t.rollout.inTurn)
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
	// How many runs updated the VM; the health gate follows it.
	Updates pulumi.IntOutput `pulumi:"updates"`
	// How many runs found another machine than before; the bootstrap follows those of control planes.
	Remade pulumi.IntOutput `pulumi:"remade"`

	vm      *vm.VirtualMachine
	seen    pulumi.Output // a [vmlookup.Seen]
	applied *machine.ConfigurationApply
}

// NewTalosNode makes the VM and gives it its configuration. A change of its sizes is made in place; a new template
// version leaves it as it is.
func NewTalosNode(
	ctx *pulumi.Context, name string, args TalosNodeArgs, opts ...pulumi.ResourceOption,
) (*TalosNode, error) {
	return newTalosNode(ctx, name, args, turn{}, opts...)
}

func newTalosNode(
	ctx *pulumi.Context, name string, args TalosNodeArgs, turn turn, opts ...pulumi.ResourceOption,
) (*TalosNode, error) {
	args = args.withDefaults(name)
	if err := args.validate(name); err != nil {
		return nil, err
	}

	if turn.client == nil {
		turn.client = args.Client.configuration()
	}

	c := &TalosNode{}

	return register(ctx, TalosNodeType, "node", name, c, opts,
		step{"the VM of ", func() (err error) {
			c.vm, err = c.makeVM(ctx, name, args, turn)

			return err
		}},
		step{"what may be done on the machine of ", func() (err error) {
			turn.appliedAfter, err = c.admit(ctx, args, turn)

			return err
		}},
		step{"the machine configuration of ", func() (err error) {
			c.applied, err = c.makeConfiguration(ctx, name, args, turn)

			return err
		}},
	)
}

// admit sets the outputs, which what is known of the VM is among, and returns what the configuration is applied after.
func (c *TalosNode) admit(ctx *pulumi.Context, args TalosNodeArgs, turn turn) ([]pulumi.Resource, error) {
	look := vmlookup.VM{Name: args.Name, VMID: args.Machine.VMID, Silent: turn.silent}
	if turn.rollout != nil {
		look.InTurn = func(restart func() error) error { return turn.rollout.restart(c.vm, args.Name, restart) }
	}

	c.seen = lookAt(ctx, c.vm, look)

	c.Generation, c.Updates, c.Remade = seenOf(c.seen)
	// From the plan where the provider could only guess: it would ask the guest agent, which Talos may not have.
	c.VMID = c.vm.VmId
	c.VMName = c.vm.Name
	c.Host = c.vm.NodeName
	c.Address = args.address()
	c.MAC = pulumi.String(args.Machine.MAC).ToStringOutput()

	if turn.admitted == nil {
		return turn.appliedAfter, nil
	}

	rules, err := turn.admitted(c)

	return append(slices.Clone(turn.appliedAfter), rules...), err
}

func (c *TalosNode) makeVM(
	ctx *pulumi.Context, name string, args TalosNodeArgs, turn turn,
) (*vm.VirtualMachine, error) {
	return newVM(ctx, name, virtual{
		name:     args.Name,
		about:    ownership.NodeAbout(args.Role, args.Name, args.Cluster),
		machine:  args.Machine,
		network:  *args.Network,
		hardware: talosHardware,
		// Nothing here needs the agent's answer.
		agentTimeout:   "2s",
		initialization: initialization(args),
		protect:        args.Protect,
	}, nil, pulumi.Parent(c), pulumi.DependsOn(turn.madeAfter), turn.options())
}

func (c *TalosNode) makeConfiguration(
	ctx *pulumi.Context, name string, args TalosNodeArgs, turn turn,
) (*machine.ConfigurationApply, error) {
	after := append([]pulumi.Resource{c.vm}, turn.appliedAfter...)

	hook, err := c.makeHook(ctx, name, args)
	if err != nil {
		return nil, err
	}

	// Without timeouts, which means ten minutes: the published provider applies, then fails to save a state that has them
	// (pulumiverse/pulumi-talos#208).
	return machine.NewConfigurationApply(ctx, name+tokens.OfConfiguration, &machine.ConfigurationApplyArgs{
		ApplyMode:                 pulumi.String("auto"),
		ClientConfiguration:       turn.client,
		ConfigPatches:             args.Patches,
		Endpoint:                  args.address(),
		MachineConfigurationInput: args.Configuration,
		Node:                      args.address(),
	},
		pulumi.Parent(c),
		pulumi.DependsOn(after),
		hook,
		turn.options(), // after the wait for the machine
		pulumi.IgnoreChanges(turn.keeps),
		// A new VM comes without configuration. One that Pulumi creates because someone removed the former one is not
		// replaced, and one that was restored or rolled back has the configuration of that time.
		pulumi.ReplaceWith([]pulumi.Resource{c.vm}),
		pulumi.ReplacementTrigger(c.Generation))
}

// address is the node's without its prefix length.
func (a TalosNodeArgs) address() pulumi.StringOutput { return addressAlone(a.Address) }

// addressAlone is an address without its prefix length.
func addressAlone(address pulumi.StringInput) pulumi.StringOutput {
	return address.ToStringOutput().ApplyT(func(stated string) (string, error) {
		prefix, err := netip.ParsePrefix(stated)
		if err != nil {
			return "", fmt.Errorf("address: %q is not an address with its prefix length; use one such as 10.0.0.10/24", stated)
		}

		return prefix.Addr().String(), nil
	}).(pulumi.StringOutput)
}

func (a TalosNodeArgs) withDefaults(name string) TalosNodeArgs {
	setDefault(&a.Name, name)
	setDefault(&a.Role, RoleWorker)
	setDefault(&a.AnswersWithin, answersWithin.Seconds())
	a.Machine = a.Machine.withDefaults()
	a.Network = new(pointed(a.Network).withDefaults())

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
