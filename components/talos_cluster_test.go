package components

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

func TestVMPropertiesDependOnNoResource(t *testing.T) {
	t.Parallel()
	r := runCluster(t, enginetest.Options{}, plannedCluster(3, 2))

	for name, vm := range r.ByType(tokens.VirtualMachine) {
		for property := range vm.Inputs {
			assert.Empty(
				t, vm.PropertyDependencies(string(property)),
				"%s.%s: its replacement would spread to the VM", name, property,
			)
		}
	}
}

func TestTalosClusterLimitsClonesPerDatastore(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(1, 10)
	for i := range cluster.workers() {
		cluster.worker(i).Machine.Host = "pve1"
	}

	r := runCluster(t, enginetest.Options{}, cluster)

	vms := r.ByType(tokens.VirtualMachine)
	waits := func(node string) []string {
		return slices.DeleteFunc(
			vms[node+"-vm"].DependsOn(), func(name string) bool { return strings.HasSuffix(name, "-build") },
		)
	}
	// Not the constant itself: if a volume takes a second, a fifth clone waits longer for its volumes than Proxmox' ten
	// seconds.
	const atOnce = 4
	for i, node := range cluster.Nodes {
		if i < atOnce {
			assert.Empty(t, waits(node.Name), node.Name)

			continue
		}

		assert.Equal(t, []string{cluster.Nodes[i-atOnce].Name + "-vm"}, waits(node.Name), node.Name)
	}
}

// appliedTo returns the request that gives a node its configuration.
func appliedTo(t *testing.T, r *enginetest.Recorder, node string) request.Apply {
	t.Helper()

	return enginetest.RequestOf[request.Apply](t, r.ByType(tokens.LocalCommand)[node+tokens.OfConfiguration])
}

// configurations returns the commands that give the nodes of a cluster their configurations, by node.
func configurations(r *enginetest.Recorder) map[string]enginetest.Registration {
	all := map[string]enginetest.Registration{}

	for name, command := range r.ByType(tokens.LocalCommand) {
		if node, found := strings.CutSuffix(name, tokens.OfConfiguration); found {
			all[node] = command
		}
	}

	return all
}

func TestTalosClusterContractIsNeverChanged(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(1, 0)
	cluster.TalosVersion = "v1.13.0"
	r := runCluster(t, enginetest.Options{Contract: "v1.11"}, cluster)

	secrets := r.ByType(tokens.Secrets)["one-secrets"]
	assert.Equal(t, "v1.13", secrets.Input("talosVersion").StringValue())
	assert.Equal(t, []string{"talosVersion"}, secrets.Request.GetIgnoreChanges())

	assert.Equal(t, "v1.11", r.Outputs("one")["contract"].StringValue())
	assert.NotContains(t, appliedTo(t, r, "one-cp-1").Configuration, "HostnameConfig",
		"a cluster of an older contract has no documents that contract does not know")
}

func TestTalosClusterConfigurations(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(3, 2)
	cluster.worker(0).Talos.SecureBoot = true
	r := runCluster(t, enginetest.Options{}, cluster)

	assert.Contains(t, appliedTo(t, r, "one-general-1").Configuration, "/nocloud-installer-secureboot/")
	assert.NotContains(t, appliedTo(t, r, "one-general-2").Configuration, "secureboot")

	for _, n := range plannedCluster(3, 2).Nodes {
		configuration := appliedTo(t, r, n.Name).Configuration
		for _, part := range []string{
			"type: " + n.Role, "endpoint: https://127.1.1.5:6443", "kubelet:v1.35.0", "kubePrism", "hostname: " + n.Name, enginetest.MachineSecret,
		} {
			assert.Contains(t, configuration, part, n.Name)
		}
	}

	clients := r.Calls("talos:client/getConfiguration:getConfiguration")
	require.Len(t, clients, 3)

	var nodes []string

	for _, config := range clients {
		assert.Equal(t, `["127.1.1.10","127.1.1.11","127.1.1.12"]`, jsonText(config["endpoints"]))
		nodes = append(nodes, jsonText(config["nodes"]))
	}

	assert.ElementsMatch(t, []string{
		`["127.1.1.10"]`, // the user's: talosctl health takes one node
		`["127.1.1.10","127.1.1.11","127.1.1.12","127.1.1.20","127.1.1.21"]`,
		`["127.1.1.10","127.1.1.11","127.1.1.12"]`, // the bootstrap's: workers come and go
	}, nodes)
}

// TestTalosClusterEndpointAndNetworks: names in certificates, a load balancer's endpoint, and a worker in another
// network than the cluster's.
func TestTalosClusterEndpointAndNetworks(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(1, 2)
	cluster.Endpoint, cluster.CertSANs = "https://k8s.example.org:443", []string{"api.example.org"}
	dmz := cluster.worker(1)
	dmz.Address = netip.MustParsePrefix("127.1.2.20/24")
	dmz.Network = &Network{CIDR: netip.MustParsePrefix("127.1.2.0/24"), Gateway: netip.MustParseAddr("127.1.2.1"), Bridge: "vmbr3", VLAN: 7, DNS: []netip.Addr{netip.MustParseAddr("127.1.2.1")}}
	r := runCluster(t, enginetest.Options{}, cluster)

	configurations := map[string]string{}

	for _, n := range cluster.Nodes {
		configurations[n.Name] = appliedTo(t, r, n.Name).Configuration
		assert.Contains(t, configurations[n.Name], "endpoint: https://k8s.example.org:443\n")
		assert.Contains(t, configurations[n.Name], "certSANs:\n        - api.example.org\n")
	}

	for _, part := range []string{"- 127.1.2.0/24", "127.1.2.20/24", "gateway: 127.1.2.1", "nameservers:\n            - 127.1.2.1\n"} {
		assert.Contains(t, configurations["one-general-2"], part)
		assert.NotContains(t, configurations["one-general-1"], part)
	}

	assert.NotContains(t, configurations["one-general-2"], "127.1.1.0/24", "its kubelet uses no address of another network")

	vm := r.ByType(tokens.VirtualMachine)["one-general-2-vm"]
	assert.Contains(t, jsonText(vm.Input("networkDevices")), `"bridge":"vmbr3"`)
	assert.Contains(t, jsonText(vm.Input("networkDevices")), `"vlanId":7`)
	assert.Contains(t, jsonText(vm.Input("initialization")), `"gateway":"127.1.2.1"`)
}

func TestTalosClusterKeepsSecretsEncrypted(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(3, 2)
	cluster.Protect, cluster.Secret = true, true
	cluster.Patches = []string{"machine: {sysctls: {a: the-cluster-patch}}"}
	cluster.worker(0).Secret, cluster.worker(0).Labels = true, map[string]string{"a": "the-label"}

	cluster.worker(0).Taints, cluster.worker(0).Patches = map[string]string{"b": "the-taint:NoSchedule"}, []string{
		"machine: {sysctls: {a: the-node-patch}}",
	}
	for i := range cluster.controlPlanes() {
		cluster.controlPlane(i).Secret = true
	}

	cluster.worker(1).Encryption = &Encryption{
		State: talos.KeyNodeID, Ephemeral: talos.KeyStatic, Passphrase: "the-passphrase",
	}
	r := runCluster(t, enginetest.Options{}, cluster)

	configured := []string{"the-cluster-patch", "the-label", "the-taint", "the-node-patch", "the-passphrase"}

	var all strings.Builder

	for place, value := range r.Everything() {
		plain := jsonText(enginetest.Plain(value))
		for _, secret := range append(
			[]string{
				enginetest.MachineSecret, enginetest.ClientKey, enginetest.KubeconfigText, enginetest.TalosconfigText,
			},
			configured...,
		) {
			assert.NotContains(t, plain, secret, place)
		}

		all.WriteString(jsonText(value))
	}

	for name, command := range r.ByType(tokens.LocalCommand) {
		if strings.HasSuffix(name, tokens.OfConfiguration) {
			all.WriteString(enginetest.RequestOf[request.Apply](t, command).Configuration)
		}
	}

	for _, secret := range configured {
		assert.Contains(t, all.String(), secret, "the recorder has the secret")
	}

	assert.True(
		t, r.ByType(tokens.LocalCommand)["one-healthy"].Input("environment.FOLLOWS").IsSecret(),
		"short secrets could be guessed from their digest",
	)

	for _, command := range r.ByType(tokens.LocalCommand) {
		assert.True(t, command.Input("stdin").IsSecret(), command.Name)
	}

	assert.True(t, r.Outputs("one")["kubeconfig"].IsSecret())
	assert.True(t, r.Outputs("one")["talosconfig"].IsSecret())
}

// jsonText returns a value as JSON.
func jsonText(value resource.PropertyValue) string {
	encoded, err := json.Marshal(value.Mappable())
	if err != nil {
		return err.Error()
	}

	return string(encoded)
}

func TestTalosClusterRequestsToTalosops(t *testing.T) {
	t.Parallel()
	r := runCluster(t, enginetest.Options{}, plannedCluster(3, 2))

	var versions []string
	for _, node := range plannedCluster(3, 2).Nodes {
		versions = append(
			versions,
			`{"node":"`+node.Name+
				`","talosVersion":"v1.12.6","schematic":"376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"}`,
		)
	}

	controlPlanes := `"controlPlanes":[{"name":"one-cp-1","address":"127.1.1.10"},{"name":"one-cp-2","address":"127.1.1.11"},{"name":"one-cp-3","address":"127.1.1.12"}]`
	for name, expected := range map[string]string{
		"one-bootstrap": `{"interval":"500ms",` + controlPlanes + `,"talosconfig":"the-talosconfig"}`,
		"one-healthy": `{` + controlPlanes +
			`,"workers":[{"name":"one-general-1","address":"127.1.1.20"},{"name":"one-general-2","address":"127.1.1.21"}],` +
			`"kubernetesVersion":"v1.35.0","versions":[` + strings.Join(versions, ",") +
			`],"talosconfig":"the-talosconfig","kubeconfig":"the-kubeconfig"}`,
		"one-marked": `{` + controlPlanes +
			`,"marks":[{"node":"one-cp-1"},{"node":"one-cp-2"},{"node":"one-cp-3"},{"node":"one-general-1"},{"node":"one-general-2"}],` +
			`"kubeconfig":"the-kubeconfig"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			command := r.ByType(tokens.LocalCommand)[name]

			stdin := command.Input("stdin")
			require.True(t, stdin.IsSecret())
			assert.JSONEq(t, expected, stdin.SecretValue().Element.StringValue())
		})
	}
}

func TestTalosClusterBootstrapRunsAgainForRecreatedMachines(t *testing.T) {
	t.Parallel()

	follows := func(recreated ...int) string {
		look := func(_ context.Context, vm vmlookup.VM) (vmlookup.State, error) {
			return vmlookup.State{Recreated: map[bool]int{true: 1}[slices.Contains(recreated, vm.VMID)]}, nil
		}
		r := runKnownCluster(t, enginetest.Options{}, plannedCluster(3, 2), vmlookup.Run{Lookup: look})

		return jsonText(r.ByType(tokens.LocalCommand)["one-bootstrap"].Input("environment"))
	}

	r := runCluster(t, enginetest.Options{}, plannedCluster(3, 2))
	assert.True(t, r.ByType(tokens.LocalCommand)["one-bootstrap"].Input("addPreviousOutputInEnv").BoolValue(),
		"it tells talosops that the cluster was bootstrapped before")

	assert.JSONEq(t, `{"FOLLOWS": "bootstrap"}`, follows())
	assert.Equal(t, follows(), follows(3000), "a worker")
	assert.JSONEq(t, `{"FOLLOWS": "bootstrap after 2 machines recreated"}`, follows(2000, 2002))
}

func TestTalosClusterHealthGateTrigger(t *testing.T) {
	t.Parallel()

	trigger := func(change func(*TalosClusterArgs)) string {
		cluster := plannedCluster(3, 2)
		change(&cluster)
		r := runCluster(t, enginetest.Options{}, cluster)

		return jsonText(r.ByType(tokens.LocalCommand)["one-healthy"].Input("environment"))
	}
	before := trigger(func(*TalosClusterArgs) {})

	assert.Equal(t, before, trigger(func(*TalosClusterArgs) {}), "nothing changed")
	assert.Equal(t, before, trigger(func(c *TalosClusterArgs) { c.worker(0).Machine.Tags = []string{"new"} }), "a tag")

	for name, change := range map[string]func(*TalosClusterArgs){
		"a worker less":    func(c *TalosClusterArgs) { c.Nodes = c.Nodes[:len(c.Nodes)-1] },
		"a new label":      func(c *TalosClusterArgs) { c.worker(0).Labels = map[string]string{"a": "b"} },
		"a new Kubernetes": func(c *TalosClusterArgs) { c.KubernetesVersion = "v1.35.1" },
		"a new Talos":      func(c *TalosClusterArgs) { c.worker(0).Talos.Version = "v1.12.7" },
		"a new extension":  func(c *TalosClusterArgs) { c.worker(0).Talos.Extensions = []string{"siderolabs/iscsi-tools"} },
		"a CPU weight":     func(c *TalosClusterArgs) { c.worker(0).Machine.CPUUnits = 200 },
		"a user's own patch": func(c *TalosClusterArgs) {
			c.Patches = []string{
				"machine: {sysctls: {vm.swappiness: \"1\"}}",
			}
		},
	} {
		assert.NotEqual(t, before, trigger(change), name)
	}
}

func TestTalosClusterRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()

	args := func() TalosClusterArgs { return plannedCluster(1, 1) }
	assertRefused(t, args, NewTalosCluster, map[string]invalidCase[TalosClusterArgs]{
		"no control plane": {
			func(c *TalosClusterArgs) { c.Nodes = c.Nodes[1:] }, "nodes: none is a control plane; add at least one",
		},
		"no network": {
			func(c *TalosClusterArgs) { c.Network.CIDR = netip.Prefix{} }, "network.cidr: is missing; set the network, such as 10.0.0.0/24",
		},
		"an endpoint without a port": {
			func(c *TalosClusterArgs) { c.Endpoint = "https://k8s.example.org" },
			`endpoint: "https://k8s.example.org" is not the URL of a Kubernetes API; write it as https://k8s.example.org:6443`,
		},
		"a node's network without addresses": {
			func(c *TalosClusterArgs) { c.worker(0).Network = &Network{DNS: make([]netip.Addr, 1)} },
			"nodes[1].network.cidr: is missing; set the network, such as 10.0.0.0/24\nnodes[1].network.dns[0]: is missing",
		},
		"the same address twice": {
			func(c *TalosClusterArgs) { c.worker(0).Address = c.controlPlane(0).Address },
			`nodes[1].address: "127.1.1.10/24" is already at nodes[0].address`,
		},
		"IPv6 for some nodes": {
			func(c *TalosClusterArgs) {
				c.Network.IPv6 = &IPv6Network{CIDR: netip.MustParsePrefix("fd00:1::/64")}
				c.controlPlane(0).AddressIPv6 = netip.MustParsePrefix("fd00:2::a/64")
			},
			`nodes[0].addressIpv6: "fd00:2::a/64" is outside the network fd00:1::/64; choose one of its addresses` + "\n" +
				"nodes[1].addressIpv6: is missing, and the network has IPv6; set it with its prefix length, such as fd00:1::10/64",
		},
		"IPv6 addresses without a network": {
			func(c *TalosClusterArgs) { c.worker(0).AddressIPv6 = netip.MustParsePrefix("fd00:1::a/64") },
			`nodes[1].addressIpv6: "fd00:1::a/64" is set, and the network has IPv4 only; set ipv6 of the network, or remove it`,
		},
		"an invalid version": {
			func(c *TalosClusterArgs) { c.TalosVersion = "1" }, "talosVersion: \"1\" cannot be used: \"1\" is not a version of Talos",
		},
		"an unsupported Talos": {
			func(c *TalosClusterArgs) { c.worker(0).Talos.Version = "v1.11.6" },
			"nodes[1].talos.version: \"v1.11.6\" cannot be used: version v1.11.6 of Talos is not supported any more",
		},
		"a Kubernetes that this Talos does not run": {
			func(c *TalosClusterArgs) { c.KubernetesVersion = "v1.37.0" },
			"kubernetesVersion: \"v1.37.0\" cannot be used: version v1.37.0 of Kubernetes does not run on Talos v1.12",
		},
		"a patch that cannot be read": {
			func(c *TalosClusterArgs) { c.Patches = []string{"machine: ["} }, "patches[0]: makes the machine configuration of one-cp-1 invalid",
		},
		"an encrypted patch with a conflict": {
			func(c *TalosClusterArgs) {
				c.Secret, c.Patches = true, []string{"machine: {features: {stableHostname: true}}"}
			},
			"patches[0]: makes the machine configuration of one-cp-1 invalid; correct or remove it: the reason is not shown",
		},
		"a node without a MAC": {
			func(c *TalosClusterArgs) { c.worker(0).Machine.MAC = "" }, "nodes[1].machine.mac: is missing; set one such as 02:",
		},
		"bonds without devices, and devices of unknown bonds": {
			func(c *TalosClusterArgs) {
				n := c.worker(0)
				n.Bonds = []Bond{{Name: "bond0", Mode: "active-backup"}, {Name: "bond1"}}
				n.Machine.ExtraNICs = []NIC{
					{Bridge: "vmbr1", MAC: "02:00:00:00:01:01", Bond: "bond9"},
					{Bridge: "vmbr1", MAC: "02:00:00:00:01:02", Bond: "bond0", Address: netip.MustParsePrefix("10.1.0.10/24")},
				}
			},
			"nodes[1].machine.extraNics[0].bond: \"bond9\" is not one of the node's bonds; set the name of one\n" +
				"nodes[1].machine.extraNics[1].bond: \"bond0\" is set with an address, routes or VLANs; set these for the bond\n" +
				"nodes[1].bonds[1].mode: is missing; set one such as active-backup\n" +
				"nodes[1].bonds[1].name: \"bond1\" is the bond of no device; set bond for some of the machine's extraNics",
		},
		"everything at once": {
			func(c *TalosClusterArgs) {
				c.Network.CIDR, c.worker(0).Machine.VMID, c.worker(0).Role = netip.MustParsePrefix("10.0.0.1/24"), 0, "boss"
			},
			"network.cidr: \"10.0.0.1/24\" is not a network; write it as 10.0.0.0/24\nnodes[1].role: \"boss\" is neither controlplane nor worker; choose one\n" +
				"nodes[1].machine.vmid: 0 is not a VMID; use 100 or higher",
		},
		"a patch with a restricted label": {
			func(c *TalosClusterArgs) {
				c.worker(0).Patches = []string{"machine: {nodeLabels: {node-role.kubernetes.io/worker: \"\"}}"}
			},
			"nodes[1].patches[0]: makes the machine configuration of one-general-1 invalid; correct or remove it: node-role.kubernetes.io/worker: Kubernetes lets no worker",
		},
	})
}

func TestTalosClusterRefusesToRunDuringCARotation(t *testing.T) {
	t.Parallel()

	both := base64.StdEncoding.EncodeToString(slices.Concat(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("new")}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("old")}),
	))

	for name, wantError := range map[string]string{
		"os": "Talos API is being replaced, and nothing was changed: " +
			"talos-proxmox secrets rotate-ca <stack> --cluster one --authority talos finishes that, then run this again",
		"k8s": "Kubernetes API is being replaced, and nothing was changed: " +
			"talos-proxmox secrets rotate-ca <stack> --cluster one --authority kubernetes finishes that, then run this again",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			options := enginetest.Options{Authorities: map[string]string{name: both}}
			r, err := enginetest.Run(options, func(ctx *pulumi.Context) error {
				_, err := NewTalosCluster(ctx, "one", plannedCluster(3, 1))

				return err
			})
			require.ErrorContains(t, err, "the certificate authority of its "+wantError)
			assert.Empty(t, r.Names(tokens.VirtualMachine))
			assert.Empty(t, configurations(r))
		})
	}
}
