package components

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// registerSingleNode registers a node with its template.
func registerSingleNode(t *testing.T, o enginetest.Options, n ClusterNode, network Network) *enginetest.Recorder {
	t.Helper()

	r, err := enginetest.Run(o, func(ctx *pulumi.Context) error {
		template := plannedTemplate(n.Machine.Host)
		if n.Machine.ISO != nil {
			template.Source, template.VMID = SourceISO, 0
		}

		_, byHost, err := templates(ctx, template)
		if err != nil {
			return err
		}

		if n.Machine.ISO != nil {
			n.Machine.ISO = byHost[n.Machine.Host].VolumeID
		} else {
			n.Machine.Template = byHost[n.Machine.Host].VMID
		}

		args, err := nodeArgs(ctx, n, network)
		if err != nil {
			return err
		}

		if len(n.GPUs) > 0 {
			_, err = NewGPUWorker(ctx, n.Name, GPUWorkerArgs{Node: args, GPUs: n.GPUs, Driver: n.Driver})
		} else {
			_, err = NewTalosNode(ctx, n.Name, args)
		}

		return err
	})
	require.NoError(t, err)

	return r
}

// nodeArgs returns the arguments of a node without its cluster.
func nodeArgs(ctx *pulumi.Context, n ClusterNode, network Network) (TalosNodeArgs, error) {
	secrets, err := machine.NewSecrets(ctx, "secrets", &machine.SecretsArgs{})
	if err != nil {
		return TalosNodeArgs{}, err
	}

	client := secrets.ClientConfiguration

	return TalosNodeArgs{
		Name: n.Name, Cluster: "one", Role: n.Role, Machine: n.Machine, Network: &network,
		Address:       pulumi.String(n.Address.String()),
		Configuration: pulumi.ToSecret(pulumi.String("version: v1alpha1\nmachine: {type: worker}\n")).(pulumi.StringOutput),
		Client: TalosClient{
			CACertificate: client.CaCertificate(), ClientCertificate: client.ClientCertificate(), ClientKey: client.ClientKey(),
		},
	}, nil
}

func isoNode() ClusterNode {
	n := plannedNode(RoleWorker, 0, "pve1")
	n.Machine.ISO = pulumi.String("local:iso/talos.iso")

	return n
}

// vmCase is a change of a node's plan and the expected inputs of its VM.
type vmCase struct {
	change  func(*ClusterNode, *Network)
	inputs  map[string]any // nil = not set
	ignored []string
}

func (test vmCase) check(t *testing.T) {
	t.Helper()

	n, network := plannedNode(RoleWorker, 0, "pve1"), plannedNetwork()
	if test.change != nil {
		test.change(&n, &network)
	}

	r := registerSingleNode(t, enginetest.Options{}, n, network)

	vm := r.ByType(tokens.VirtualMachine)[n.Name+"-vm"]
	for property, value := range test.inputs {
		assert.Equal(t, resource.NewPropertyValue(value), vm.Input(property), property)
	}

	if test.ignored != nil {
		assert.ElementsMatch(t, test.ignored, vm.Request.GetIgnoreChanges())
	}
}

func TestTalosNodeVMInputs(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]vmCase{
		"no gateway and no name servers": {
			change:  func(_ *ClusterNode, network *Network) { network.Gateway, network.DNS = netip.Addr{}, nil },
			inputs:  map[string]any{"initialization.ipConfigs[0].ipv4.gateway": nil, "initialization.dns": nil},
			ignored: []string{"clone", "disks[0].speed", "initialization.dns", "nodeName"},
		},
		"defaults of what is not set": {
			change: func(n *ClusterNode, network *Network) {
				m := &n.Machine
				m.Cores, m.Memory, m.DiskSize, m.Datastore, m.CPUType, network.Bridge = 0, 0, 0, "", "", ""
			},
			inputs: map[string]any{
				"cpu.cores":                2,
				"memory.dedicated":         4096,
				"disks[0].size":            40,
				"disks[0].datastoreId":     "local-lvm",
				"cpu.type":                 "host",
				"cpu.units":                100,
				"networkDevices[0].bridge": "vmbr0",
			},
		},
		"a TPM": {
			change: func(n *ClusterNode, _ *Network) { n.Machine.TPM, n.Machine.Datastore = true, "tank" },
			inputs: map[string]any{"tpmState.datastoreId": "tank", "tpmState.version": "v2.0", "efiDisk.preEnrolledKeys": false},
		},
		"two raw GPUs": {
			change: func(n *ClusterNode, _ *Network) {
				*n = withGPUs(*n, GPU{Name: "b40", PCI: "0000:c1:00"}, GPU{Name: "b40", PCI: "0000:c2:00.0"})
			},
			inputs: map[string]any{
				"hostpcis[0].id":      "0000:c1:00",
				"hostpcis[0].mapping": nil,
				"hostpcis[1].device":  "hostpci1",
				"hostpcis[1].id":      "0000:c2:00.0",
				"hostpcis[1].rombar":  true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.check(t)
		})
	}
}

func TestTalosNodeChangeAffectsOnlyThatNode(t *testing.T) {
	t.Parallel()

	before := plannedCluster(3, 2)

	for name, test := range map[string]struct {
		change  func(*TalosClusterArgs)
		changed []string // registrations whose inputs differ
	}{
		"one node's memory": {func(c *TalosClusterArgs) { c.worker(0).Machine.Memory = 8192 }, []string{"one-general-1-vm", "one-healthy"}},
		"one node's cores":  {func(c *TalosClusterArgs) { c.controlPlane(1).Machine.Cores = 8 }, []string{"one-cp-2-vm", "one-healthy"}},
		"one node's disk":   {func(c *TalosClusterArgs) { c.worker(1).Machine.DiskSize = 80 }, []string{"one-general-2-vm"}},
		"one node's own disk": {func(c *TalosClusterArgs) {
			c.worker(1).Machine.ExtraDisks = []Disk{{Interface: "scsi1", SizeGiB: 1, Datastore: "tank"}}
		}, []string{"one-general-2-vm"}},
		"one node's labels": {
			func(c *TalosClusterArgs) { c.worker(0).Labels = map[string]string{"a": "b"} },
			[]string{"one-general-1-configuration", "one-healthy", "one-marked"},
		},
		"a worker less": {
			func(c *TalosClusterArgs) { c.Nodes = c.Nodes[:len(c.Nodes)-1] },
			[]string{
				"one-general-2", "one-general-2-configuration", "one-general-2-leave", "one-general-2-vm", "one-healthy", "one-marked",
				"one-talos",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			after := plannedCluster(3, 2)
			test.change(&after)

			old := runCluster(t, enginetest.Options{}, before)
			changed := runCluster(t, enginetest.Options{}, after)

			assert.Equal(t, test.changed, changedRegistrations(old, changed))
		})
	}
}

// changedRegistrations returns the names of the registrations that only one run has, or that have other inputs.
func changedRegistrations(a, b *enginetest.Recorder) []string {
	var names []string

	for _, pair := range [][2]*enginetest.Recorder{{a, b}, {b, a}} {
		for _, one := range pair[0].All() {
			other, exists := pair[1].ByType(one.Type)[one.Name]
			if !exists || !one.Inputs.DeepEquals(other.Inputs) {
				names = append(names, one.Name)
			}
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

func TestTalosNodeIsNotReplacedForANewTemplate(t *testing.T) {
	t.Parallel()

	before, after := plannedCluster(1, 1), plannedCluster(1, 1)
	for i := range after.Nodes {
		after.Nodes[i].Talos.Version = "v1.12.7"
	}

	old := runCluster(t, enginetest.Options{}, before)
	changed := runCluster(t, enginetest.Options{}, after)

	for name, vm := range old.ByType(tokens.VirtualMachine) {
		other := changed.ByType(tokens.VirtualMachine)[name]
		assert.True(t, vm.Inputs.DeepEquals(other.Inputs), name)
		assert.Contains(t, other.Request.GetIgnoreChanges(), "clone")
	}

	assert.Equal(t, []string{"one-cp-1-configuration", "one-general-1-configuration", "one-healthy", "one-talos"},
		changedRegistrations(old, changed),
		"only the installer image of later upgrades changes")
}

func TestTalosNodeRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()

	assertRefused(t, func() TalosNodeArgs {
		n := plannedNode(RoleWorker, 0, "pve1")
		n.Machine.Template = pulumi.Int(901)

		return TalosNodeArgs{
			Machine: n.Machine, Network: new(plannedNetwork()), Address: pulumi.String(n.Address.String()),
			Configuration: pulumi.String("configuration"),
		}
	}, NewTalosNode, map[string]invalidCase[TalosNodeArgs]{
		"no host": {
			func(a *TalosNodeArgs) { a.Machine.Host = "" }, "machine.host: is missing; set the Proxmox host",
		},
		"no VMID": {
			func(a *TalosNodeArgs) { a.Machine.VMID = 0 }, "machine.vmid: 0 is not a VMID; use 100 or higher",
		},
		"a weight that no host takes": {
			func(a *TalosNodeArgs) { a.Machine.CPUUnits = 20000 }, "machine.cpuUnits: 20000 is not a weight; use 2 to 10000",
		},
		"no MAC":     {func(a *TalosNodeArgs) { a.Machine.MAC = "" }, "machine.mac: is missing"},
		"no address": {func(a *TalosNodeArgs) { a.Address = nil }, "address: is missing"},
		"no template": {
			func(a *TalosNodeArgs) { a.Machine.Template = nil },
			"machine.template: a machine comes either from a template or from an ISO",
		},
		"template and ISO": {func(a *TalosNodeArgs) { a.Machine.ISO = pulumi.String("x") }, "set one of template and iso"},
		"half a PCI device": {
			func(a *TalosNodeArgs) { a.Machine.PCIDevices = []PCIDevice{{}} },
			"machine.pciDevices[0]: needs either mapping or id",
		},
		"an empty name server": {
			func(a *TalosNodeArgs) { a.Network.DNS = make([]netip.Addr, 1) }, "network.dns[0]: is missing; set a name server",
		},
		"several problems at once": {
			func(a *TalosNodeArgs) { a.Machine.Host, a.Machine.VMID = "", 0 },
			"machine.host: is missing; set the Proxmox host, such as pve1\nmachine.vmid: 0 is not a VMID",
		},
	})
}

// TestTalosNodeConfiguration: one command gives a node's machine its configuration, and knows how to recognize it.
func TestTalosNodeConfiguration(t *testing.T) {
	t.Parallel()

	for _, configured := range []bool{false, true} {
		r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
			args, err := nodeArgs(ctx, isoNode(), plannedNetwork())
			if err != nil {
				return err
			}

			args.Configuration = pulumi.String("version: v1alpha1\nmachine: {type: worker}\n")
			args.Patches = pulumi.ToStringArray([]string{"machine: {sysctls: {vm.swappiness: \"1\"}}"})
			args.AnswersWithin = 90

			lookup := func(context.Context, vmlookup.VM) (vmlookup.State, error) {
				return vmlookup.State{Configured: configured}, nil
			}
			_, err = NewTalosNode(vmlookup.NewContext(ctx, vmlookup.Run{Lookup: lookup}), "one-general-1", args)

			return err
		})
		require.NoError(t, err)

		command := r.ByType(tokens.LocalCommand)["one-general-1-configuration"]
		assert.Equal(t, "${TALOSOPS:-talosops} apply", command.Input("create").StringValue())
		assert.True(t, command.Input("addPreviousOutputInEnv").BoolValue())
		require.True(t, command.Input("stdin").IsSecret())
		assert.Empty(t, command.Request.GetHooks().GetBeforeDelete(), "with those, pulumi destroy would need the program")

		req := enginetest.RequestOf[request.Apply](t, command)
		assert.Equal(t, configured, req.Configured)
		assert.Equal(t, "1m30s", req.AnswersWithin)
		assert.True(t, req.Worker)
		assert.Empty(t, req.ControlPlanes)
		assert.Equal(t, []string{isoNode().Machine.MAC}, req.Machine.MACs)
		assert.Equal(t, "127.1.1.20", req.Machine.Address.String())
		assert.Equal(t, "127.1.1.1", req.Machine.Gateway.String())
		assert.Contains(t, req.Configuration, "vm.swappiness: \"1\"")

		authority, err := talos.TalosconfigAuthority(req.Talosconfig)
		require.NoError(t, err)
		assert.NotEmpty(t, authority)
	}
}

// TestRequestOfAnEarlierVersion: one that the state has whole stays until it changes, so that a new version of the
// program asks nothing of machines.
func TestRequestOfAnEarlierVersion(t *testing.T) {
	t.Parallel()

	whole := request.Apply{Configuration: "a", Talosconfig: "b", AnswersWithin: "10m"}
	form := func(change func(*request.Apply)) string {
		changed := whole
		change(&changed)

		text, err := changed.Keep(nil)
		require.NoError(t, err)

		return text
	}

	earlier, err := json.Marshal(whole)
	require.NoError(t, err)

	same := form(func(*request.Apply) {})
	patient := form(func(a *request.Apply) { a.AnswersWithin = "1h" })
	renewed := form(func(a *request.Apply) { a.Talosconfig = "c" })
	changed := form(func(a *request.Apply) { a.Configuration = "c" })

	for name, test := range map[string]struct {
		last, current string
		silent        bool
		kept          bool
	}{
		"an earlier version's":                        {string(earlier), same, false, true},
		"other credentials than an earlier one's":     {string(earlier), renewed, false, false},
		"an earlier version's, and it is silent":      {string(earlier), same, true, true},
		"an earlier version's with other credentials": {string(earlier), renewed, true, true},
		"another configuration than an earlier one's": {string(earlier), changed, true, false},
		"more time":                           {same, patient, false, true},
		"other credentials":                   {same, renewed, false, false},
		"other credentials, and it is silent": {same, renewed, true, true},
		"another configuration":               {same, changed, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
				call := talosopsCall{
					whole: pulumi.String("").ToStringOutput(), keepRequest: pulumi.Bool(test.silent),
					circumstances: configurationCircumstances,
				}
				kept, err := internals.UnsafeAwaitOutput(ctx.Context(), call.keepLastRequest(
					vmlookup.Command{Request: test.last}, pulumi.String(test.current).ToStringOutput(),
				))
				assert.NoError(t, err)
				assert.Equal(t, test.kept, kept.Value == test.last)

				return nil
			}, pulumi.WithMocks("p", "s", noMocks{})))
		})
	}
}

// TestRequestOfAConfigurationIsKept: what the run knows of the cluster does not repeat the command, and a machine that
// has to be configured again gets a request that says so.
func TestRequestOfAConfigurationIsKept(t *testing.T) {
	t.Parallel()

	const last = `{"controlPlanes": [], "configuration": "a", "talosconfig": "b"}`

	for name, test := range map[string]struct {
		last, current string
		unreachable   bool
		kept          bool
	}{
		"the same":                            {last, last, false, true},
		"more control planes":                 {last, strings.Replace(last, "[]", `[{"name": "one-cp-2"}]`, 1), false, true},
		"the cluster is bootstrapped":         {last, strings.Replace(last, "{", `{"bootstrapped": true, `, 1), false, true},
		"the machine is configured":           {last, strings.Replace(last, "{", `{"configured": true, `, 1), false, true},
		"the machine is a new one":            {strings.Replace(last, "{", `{"configured": true, `, 1), last, false, false},
		"another configuration":               {last, strings.Replace(last, `"a"`, `"c"`, 1), false, false},
		"other credentials":                   {last, strings.Replace(last, `"b"`, `"c"`, 1), false, false},
		"other credentials, and it is silent": {last, strings.Replace(last, `"b"`, `"c"`, 1), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
				call := talosopsCall{keepRequest: pulumi.Bool(test.unreachable), circumstances: configurationCircumstances}
				kept, err := internals.UnsafeAwaitOutput(ctx.Context(), call.keepLastRequest(
					vmlookup.Command{Request: test.last}, pulumi.String(test.current).ToStringOutput(),
				))
				assert.NoError(t, err)

				want := test.current
				if test.kept {
					want = test.last
				}

				assert.Equal(t, want, kept.Value)

				return nil
			}, pulumi.WithMocks("p", "s", noMocks{})))
		})
	}
}
