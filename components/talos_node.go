package components

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
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
	// The node's address in the IPv6 network with its prefix length, fd00:1::10/64. Default: none.
	AddressIPv6 netip.Prefix `pulumi:"addressIpv6,optional" provider:"type=go@1:netip:text"`
	// The machine configuration, of the node's role from talos:machine:getConfiguration or a whole one; secret.
	Configuration pulumi.StringInput `pulumi:"configuration" provider:"secret"`
	// Strategic-merge patches for the configuration, one YAML document each, applied with the configuration packages of
	// Talos 1.14. Default: none.
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

// talosconfig returns the talosconfig of the client, which is a secret.
func (t TalosClient) talosconfig(cluster string) pulumi.StringOutput {
	text := pulumi.All(t.CACertificate, t.ClientCertificate, t.ClientKey).ApplyT(func(values []any) (string, error) {
		var client talos.Client

		for i, to := range []*[]byte{&client.Authority, &client.Certificate, &client.Key} {
			decoded, err := base64.StdEncoding.DecodeString(values[i].(string))
			if err != nil {
				return "", errors.New("client: it is not a client configuration of talos:machine:Secrets: pass that output")
			}

			*to = decoded
		}

		return client.Talosconfig(cluster, nil)
	})

	return pulumi.ToSecret(text).(pulumi.StringOutput)
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
	// firewall is Proxmox' firewall in front of the machine; nil = none.
	firewall *proxmoxFirewall
	// volumes are the directory volumes on its system disk.
	volumes []string
	// secrets are the cluster's, to which the state's copy of the configuration refers; nil = the copy is whole.
	secrets *machine.Secrets
	// skipped leaves the machine's configuration as it is.
	skipped bool
	// unreachable says that the machine does not answer and that the run continues without it.
	unreachable bool
}

// machineSecrets returns the machine secrets of the cluster as the state has them, a map.
func (o clusterOptions) machineSecrets() pulumi.Output {
	if o.secrets == nil {
		return pulumi.ToOutput(map[string]any(nil))
	}

	return o.secrets.MachineSecrets.ApplyT(secretValues)
}

func (o clusterOptions) updateOptions() pulumi.ResourceOption {
	if o.rollout == nil {
		return waitFor(o.updateAfter...)
	}

	return pulumi.Composite(waitFor(o.updateAfter...), o.rollout.updateHooks)
}

// configurationOptions are updateOptions for the configuration, which is in turn as well when it is created for a
// machine that runs.
func (o clusterOptions) configurationOptions() pulumi.ResourceOption {
	if o.rollout == nil {
		return waitFor(o.updateAfter...)
	}

	return pulumi.Composite(waitFor(o.updateAfter...), o.rollout.configurationHooks)
}

// configurationCircumstances are the fields of [request.Apply] whose change alone does not concern the machine.
var configurationCircumstances = []string{"controlPlanes", "drainTimeout", "healthCheck", "maintenance", "answersWithin"}

// TalosNode is a VM cloned from a template, with its machine configuration.
type TalosNode struct {
	pulumi.ResourceState

	// The VMID.
	VMID pulumi.IntOutput `pulumi:"vmid"`
	// The VM's name.
	VMName pulumi.StringOutput `pulumi:"vmName"`
	// The name of the Proxmox host.
	Host pulumi.StringOutput `pulumi:"host"`
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
	lookup        pulumi.Output // a [vmlookup.State]
	configuration *local.Command
	firewall      *local.Command      // nil = none
	applied       pulumi.StringOutput // its machine configuration, a secret
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
		step{"the high availability of ", func() error {
			if options.rollout != nil { // its cluster's nodes have to leave first
				return nil
			}

			return registerHA(ctx, name, args.Name, args.Machine, haGroup{}, pulumi.Parent(c),
				pulumi.DependsOn([]pulumi.Resource{c.configuration}), pulumi.ReplaceWith([]pulumi.Resource{c.vm}))
		}},
		step{"the firewall of ", func() error { return c.registerFirewall(ctx, name, args, options) }},
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
	}, nil, c, pulumi.DependsOn(options.vmDependsOn), options.updateOptions())
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
	c.Address = addressText(parsedAddress(args.Address))
	c.MAC = pulumi.String(args.Machine.MAC).ToStringOutput()

	return nil
}

func (c *TalosNode) registerConfiguration(
	ctx *pulumi.Context, name string, args TalosNodeArgs, options clusterOptions,
) (err error) {
	req := request.Apply{
		Machine: machineIdentity(args.Name, args.Machine, *args.Network), Worker: args.Role == RoleWorker,
		Skipped: options.skipped, AnswersWithin: time.Duration(args.AnswersWithin * float64(time.Second)).String(),
	}
	if options.rollout != nil {
		req.Common = options.rollout.configurationRequest()

		if !options.skipped {
			options.rollout.expectLookup(name+tokens.OfConfiguration, c.lookup)
		}
	}

	resourceOptions := []pulumi.ResourceOption{
		pulumi.Parent(c), pulumi.DependsOn(append([]pulumi.Resource{c.vm}, options.configurationDependsOn...)),
		options.configurationOptions(),
		// A new VM has no configuration. The trigger covers VMs that Pulumi did not replace: one that was removed and created
		// again, and one that was restored or rolled back, which has the configuration of that time.
		pulumi.ReplaceWith([]pulumi.Resource{c.vm}), pulumi.ReplacementTrigger(c.Generation),
	}
	if options.skipped {
		resourceOptions = append(resourceOptions, pulumi.IgnoreChanges([]string{"stdin"}))
	}

	// Without the other nodes' addresses, which come and go.
	talosconfig := args.Client.talosconfig(cmp.Or(args.Cluster, args.Name))

	c.applied = pulumi.All(args.Configuration, args.patches()).ApplyT(func(values []any) (string, error) {
		text, err := talos.Patched(values[0].(string), values[1].([]string))
		if err != nil {
			return "", fmt.Errorf("configuration of %q: %w", name, err)
		}

		return string(text), nil
	}).(pulumi.StringOutput)

	whole := pulumi.All(c.applied, parsedAddress(args.Address), talosconfig, c.lookup).ApplyT(
		func(values []any) request.Apply {
			req := req
			req.Configuration, req.Talosconfig = values[0].(string), values[2].(string)
			req.Machine.Address, req.Configured = values[1].(netip.Addr), values[3].(vmlookup.State).Configured

			return req
		})

	c.configuration, err = talosopsCall{
		verb: "apply",
		stdin: pulumi.All(whole, options.machineSecrets()).ApplyT(func(values []any) (string, error) {
			return values[0].(request.Apply).Keep(values[1].(map[string]any))
		}).(pulumi.StringOutput),
		whole: whole.ApplyT(func(req any) (string, error) {
			text, err := json.Marshal(req)

			return string(text), err
		}).(pulumi.StringOutput),
		volumes:            options.volumes,
		keepRequest:        pulumi.Bool(options.unreachable), // renewed credentials alone do not need the machine
		circumstances:      configurationCircumstances,
		passPreviousOutput: true,
	}.register(ctx, name+tokens.OfConfiguration, resourceOptions...)

	return err
}

func (a TalosNodeArgs) patches() pulumi.StringArrayOutput {
	if a.Patches == nil {
		return pulumi.StringArray{}.ToStringArrayOutput()
	}

	return a.Patches.ToStringArrayOutput()
}

// parsedAddress parses an address with its prefix length; the output is a [netip.Addr].
func parsedAddress(address pulumi.StringInput) pulumi.Output {
	return address.ToStringOutput().ApplyT(func(text string) (netip.Addr, error) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			err = fmt.Errorf("address: %q is not an address with its prefix length; use one such as 10.0.0.10/24", text)
		}

		return prefix.Addr(), err
	})
}

// addressText returns what [parsedAddress] returned as text.
func addressText(address pulumi.Output) pulumi.StringOutput {
	return address.ApplyT(func(a any) string { return a.(netip.Addr).String() }).(pulumi.StringOutput)
}

func (a TalosNodeArgs) withDefaults(name string) TalosNodeArgs {
	setDefault(&a.Name, name)
	setDefault(&a.Role, RoleWorker)
	setDefault(&a.AnswersWithin, defaultAnswerTimeout.Seconds())
	a.Machine = a.Machine.withDefaults()
	a.Network = new(networkWithDefaults(orZero(a.Network)))

	return a
}

func (a TalosNodeArgs) validate(name string) error {
	found := &problem.List{}
	if a.Role != RoleControlPlane && a.Role != RoleWorker {
		found.Add("role", a.Role, "is neither controlplane nor worker; choose one")
	}

	a.Machine.validate("machine.", found)
	a.Machine.validateOrigin("machine.", found)
	validateNetwork(*a.Network, "network.", found)
	validateIPv6("addressIpv6", *a.Network, a.AddressIPv6, found)

	if a.Address == nil {
		found.Add("address", nil, "is missing; set it with its prefix length, or the one the router reserves")
	}

	if a.Configuration == nil {
		found.Add("configuration", nil, "is missing; pass what talos:machine:getConfiguration returns")
	}

	return problemsOf("node", name, found)
}
