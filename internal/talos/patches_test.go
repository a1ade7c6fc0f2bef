package talos

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var contracts = Contracts()

func guestAgentInstaller(version string) string {
	schematic := Schematic{Extensions: []string{"qemu-guest-agent"}}

	return Factory{}.Installer(schematic.ID(), version, Kind{Platform: "nocloud"})
}

func testCluster() ClusterConfig {
	return ClusterConfig{
		VIP: netip.MustParseAddr("10.0.0.20"),
		NTP: []string{"0.pool.ntp.org", "1.pool.ntp.org"},
	}
}

func testNode(name, role string, last int) NodeConfig {
	return NodeConfig{
		Name: name,
		Role: role,

		TalosVersion: "v1.14.4",
		Install:      Install{Image: guestAgentInstaller("v1.12.6")},
		Subnet:       netip.MustParsePrefix("10.0.0.0/24"),
		DNS:          []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("8.8.8.8")},
		Interfaces: []Interface{{
			MAC: fmt.Sprintf("02:00:0A:00:00:%02X", last),
			Link: Link{
				Address: netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", last)),
				Gateway: netip.MustParseAddr("10.0.0.1"),
			},
		}},
	}
}

// inForm returns the v1alpha1 fields for contracts that have them, and the documents for later ones.
func inForm(contract, fields, documents string) string {
	if release, err := releaseOfContract(contract); err == nil && release.KubernetesDocuments {
		return documents
	}

	return fields
}

// scenarios returns clusters whose complete configurations are golden files, with patches for a contract.
func scenarios(contract string) map[string]struct {
	cluster ClusterConfig
	nodes   []NodeConfig
} {
	type scenario = struct {
		cluster ClusterConfig
		nodes   []NodeConfig
	}

	single := testCluster()
	single.VIP, single.AllowSchedulingOnControlPlanes = netip.Addr{}, true

	withVIP := scenario{testCluster(), []NodeConfig{
		testNode("prod-cp-1", RoleControlPlane, 10), testNode("prod-cp-2", RoleControlPlane, 11),
		testNode("prod-cp-3", RoleControlPlane, 12),
		testNode("prod-general-1", RoleWorker, 30), testNode("prod-general-2", RoleWorker, 31),
	}}

	dhcp := testNode("prod-general-1", RoleWorker, 30)
	dhcp.Interfaces[0].DHCP, dhcp.Interfaces[0].Gateway = true, netip.Addr{}
	dhcpControlPlane := testNode("prod-cp-1", RoleControlPlane, 10)
	dhcpControlPlane.Interfaces[0].DHCP, dhcpControlPlane.Interfaces[0].Gateway = true, netip.Addr{}
	withDHCP := testCluster()
	withDHCP.NTP, dhcp.DNS, dhcpControlPlane.DNS = nil, nil, nil

	patched := testCluster()
	patched.CertSANs = []string{"api.example.org"}
	patched.Patches = []string{"machine:\n  sysctls:\n    vm.max_map_count: \"262144\"\n---\n" +
		"apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: udp://10.0.0.5:514\n"}
	patchedNode := testNode("prod-cp-1", RoleControlPlane, 10)
	patchedNode.Patches = []string{
		"machine:\n  sysctls:\n    vm.max_map_count: \"524288\"\n",
		inForm(contract, "cluster:\n  network:\n    cni:\n      name: flannel\n  proxy:\n    disabled: false\n",
			"apiVersion: v1alpha1\nkind: KubeFlannelCNIConfig\nbackendType: vxlan\n---\napiVersion: v1alpha1\nkind: KubeProxyConfig\nenabled: true\n"),
	}

	gpus := testCluster()
	gpus.GPUs = &ClusterGPUs{TimeSlicing: []int{4, 0}}
	gpuWorker := testNode("prod-gpu-1", RoleWorker, 40)
	gpuWorker.Install.Image = Factory{}.Installer(
		Schematic{Extensions: Driver{FlavourOpen, TrackProduction}.Extensions()}.ID(), "v1.12.6", Kind{Platform: "nocloud"},
	)
	gpuWorker.GPUs = &GPUs{Dedicated: true}
	gpuWorker.Labels = map[string]string{"example.org/gpu": "rtx4000"}
	sharedWorker := gpuWorker
	sharedWorker.Name, sharedWorker.GPUs = "prod-shared-1", &GPUs{TimeSlicing: 4}
	singleGPU := single
	singleGPU.GPUs = &ClusterGPUs{TimeSlicing: []int{0}, Operator: true}
	gpuControlPlane := testNode("prod-cp-1", RoleControlPlane, 10)
	gpuControlPlane.GPUs = &GPUs{}

	encrypted := testNode("prod-db-1", RoleWorker, 32)
	encrypted.Encryption = Encryption{
		State: KeyTPM, Ephemeral: KeyTPM, Volumes: map[string]string{"data": KeyStatic}, Passphrase: "fake-passphrase",
	}
	encrypted.Patches = []string{userVolume}
	byNodeID := testNode("prod-cp-1", RoleControlPlane, 10)
	byNodeID.Encryption = Encryption{State: KeyNodeID, Ephemeral: KeyNodeID}

	observed := testCluster()
	observed.Tailscale = &Tailscale{
		AuthKey: "tskey-auth-fake", LoginServer: "https://headscale.example.org", Tags: []string{"tag:talos", "tag:lab"},
		Routes: []string{"10.0.0.20/32"},
	}
	observed.NTS, observed.LogDestinations = true, []string{"tcp://10.0.0.7:6050", "udp://logs.example.org:514"}

	// What security: hardened sets.
	hardened := testCluster()
	hardened.APIServer = APIServer{
		AuditPolicy: testAPIServer().AuditPolicy, PodSecurity: &PodSecurity{Enforce: "baseline"},
	}
	hardened.Firewall = &Firewall{Nodes: prefixes("10.0.0.0/24"), ControlPlanes: prefixes("10.0.0.0/24")}

	withKeys := testCluster()
	withKeys.APIServer, withKeys.Registries = testAPIServer(), testRegistries()

	return map[string]scenario{
		"api-server":  {withKeys, []NodeConfig{testNode("prod-cp-1", RoleControlPlane, 10), testNode("prod-general-1", RoleWorker, 30)}},
		"firewall":    firewalled(),
		"hardened":    {hardened, []NodeConfig{byNodeID}},
		"encryption":  {testCluster(), []NodeConfig{byNodeID, encrypted}},
		"gpu":         {gpus, []NodeConfig{testNode("prod-cp-1", RoleControlPlane, 10), gpuWorker, sharedWorker}},
		"gpu-single":  {singleGPU, []NodeConfig{gpuControlPlane}},
		"single-node": {single, []NodeConfig{testNode("prod-cp-1", RoleControlPlane, 10)}},
		"vip":         withVIP,
		"dhcp":        {withDHCP, []NodeConfig{dhcpControlPlane, dhcp}},
		"dual-stack":  dualStack(),
		"several-nics": {
			testCluster(),
			[]NodeConfig{severalNICs("prod-cp-1", RoleControlPlane, 10), severalNICs("prod-storage-1", RoleWorker, 40)},
		},
		"links": {
			testCluster(), []NodeConfig{withLinks("prod-cp-1", RoleControlPlane, 10), withLinks("prod-storage-1", RoleWorker, 40)},
		},
		"remote":        {observed, []NodeConfig{testNode("prod-cp-1", RoleControlPlane, 10), testNode("prod-general-1", RoleWorker, 30)}},
		"extra-patches": {patched, []NodeConfig{patchedNode}},
	}
}

// dualStack returns a control plane with static addresses, and a worker whose IPv4 address comes by DHCP.
func dualStack() (scenario struct {
	cluster ClusterConfig
	nodes   []NodeConfig
},
) {
	scenario.cluster = testCluster()
	scenario.cluster.PodCIDRs = prefixes("10.244.0.0/16", "fd00:10:244::/56")
	scenario.cluster.ServiceCIDRs = prefixes("10.96.0.0/12", "fd00:10:96::/112")

	static, dhcp := testNode("prod-cp-1", RoleControlPlane, 10), testNode("prod-general-1", RoleWorker, 30)
	static.DNS = append(static.DNS, netip.MustParseAddr("fd00:1::53"))
	static.Interfaces[0].AddressIPv6 = netip.MustParsePrefix("fd00:1::a/64")
	static.Interfaces[0].GatewayIPv6 = netip.MustParseAddr("fe80::1")
	dhcp.Interfaces[0].DHCP, dhcp.Interfaces[0].Gateway = true, netip.Addr{}
	dhcp.Interfaces[0].AddressIPv6 = netip.MustParsePrefix("fd00:1::1e/64")
	scenario.nodes = []NodeConfig{static, dhcp}

	return scenario
}

// firewalled returns a dual-stack cluster with a pool in a network of its own, behind a firewall.
func firewalled() (scenario struct {
	cluster ClusterConfig
	nodes   []NodeConfig
},
) {
	scenario = dualStack()
	scenario.cluster.Firewall = &Firewall{
		Admin: prefixes("10.0.9.0/24"), KubernetesAPI: prefixes("10.0.9.0/24", "10.1.0.0/16"),
		Nodes: prefixes("10.0.0.0/24", "10.0.7.0/24", "fd00:1::/64"), ControlPlanes: prefixes("10.0.0.0/24", "fd00:1::/64"),
		CNI: CNIPorts{TCP: []uint16{4240, 4244}, UDP: []uint16{8472}},
	}

	return scenario
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}

	return list
}

func severalNICs(name, role string, last int) NodeConfig {
	node := testNode(name, role, last)
	node.Install.Disk, node.Install.Wipe = "/dev/vda", true
	node.Interfaces[0].MTU = 1400
	node.Interfaces[0].VLANs = []VLAN{
		{ID: 30, Link: Link{Address: netip.MustParsePrefix(fmt.Sprintf("10.0.30.%d/24", last)), MTU: 1380}},
		{ID: 31, Link: Link{DHCP: true}},
	}
	node.Interfaces = append(node.Interfaces,
		Interface{
			MAC: "02:00:0a:00:01:01", Link: Link{Address: netip.MustParsePrefix(fmt.Sprintf("10.0.40.%d/24", last)), MTU: 9000},
		},
		Interface{MAC: "02:00:0a:00:01:02", Link: Link{DHCP: true}},
	)
	node.Labels = map[string]string{"topology.kubernetes.io/zone": "pve1", "example.org/disks": "fast"}
	node.Taints = map[string]string{"example.org/storage": "only:NoSchedule"}
	node.Volumes = []Volume{{Name: "longhorn", SizeGiB: 200}, {Name: "scratch", SizeGiB: 200}}

	return node
}

// withLinks returns a node with bonds, VLANs, routes and names.
func withLinks(name, role string, last int) NodeConfig {
	route := func(destination, gateway string, metric int) Route {
		return Route{netip.MustParsePrefix(destination), netip.MustParseAddr(gateway), metric}
	}
	address := func(network string) netip.Prefix {
		return netip.MustParsePrefix(fmt.Sprintf("10.0.%s.%d/24", network, last))
	}

	node := testNode(name, role, last)
	node.SearchDomains = []string{"example.org"}
	node.StaticHosts = []StaticHost{
		{netip.MustParseAddr("10.0.0.4"), []string{"nas", "nas.example.org"}}, {netip.MustParseAddr("10.0.0.6"), []string{"git"}},
	}
	node.Interfaces[0].Routes = []Route{route("10.50.0.0/16", "10.0.0.9", 100)}
	node.Interfaces[0].VLANs = []VLAN{{ID: 30, Link: Link{Address: address("30")}}}
	node.Interfaces = append(node.Interfaces,
		Interface{MAC: "02:00:0A:00:01:01", Bond: "bond0"}, Interface{MAC: "02:00:0A:00:01:02", Bond: "bond0"},
		Interface{MAC: "02:00:0A:00:01:03", Bond: "bond1"},
		Interface{MAC: "02:00:0A:00:01:04", Link: Link{DHCP: true, RouteMetric: 2048, Routes: []Route{route("10.60.0.0/16", "10.0.60.1", 0)}}},
		Interface{MAC: "02:00:0A:00:01:05"},
	)
	node.Bonds = []Bond{
		{
			Name: "bond0", Mode: "active-backup", MIIMon: 100,
			Link: Link{Address: address("40"), MTU: 9000, Routes: []Route{route("10.70.0.0/16", "10.0.40.1", 0)}},
			VLANs: []VLAN{
				{ID: 31, Link: Link{Address: address("31"), MTU: 1500}}, {ID: 32, Link: Link{DHCP: true, RouteMetric: 4096}},
			},
		},
		{Name: "bond1", Mode: "802.3ad", MIIMon: 200, XmitHashPolicy: "layer3+4", LACPRate: "fast"},
	}

	return node
}

func TestConfigurationsAreTalosOwn(t *testing.T) {
	t.Parallel()

	for _, contract := range contracts {
		for name, scenario := range scenarios(contract) {
			for _, node := range scenario.nodes {
				t.Run(name+" "+node.Name+" "+contract, func(t *testing.T) {
					t.Parallel()

					cfg := generateConfig(t, scenario.cluster, node, contract)
					requireValid(t, cfg)
					assert.Equal(t, node.Name, cfg.NetworkHostnameConfig().Hostname())

					switch {
					case contract == "v1.12":
						requireGolden(t, path.Join(name, node.Name), cfg)
					case name == "single-node", name == "api-server", name == "firewall", name == "hardened", name == "links", name == "dual-stack", name == "gpu" && node.GPUs != nil:
						requireGolden(t, path.Join(name, node.Name+"."+contract), cfg)
					}
				})
			}
		}
	}
}

// TestWorkloadsAreNotIsolated: pods with hostPID and in-tree iSCSI of the GitOps tree run on every cluster of this
// program. What contract 1.14 generates would change that.
func TestWorkloadsAreNotIsolated(t *testing.T) {
	t.Parallel()

	isolated := func(n NodeConfig, contract string) bool {
		profile := generateConfig(t, testCluster(), n, contract).SecurityProfileConfig()

		return profile != nil && profile.WorkloadIsolation()
	}

	for _, contract := range contracts {
		for _, role := range []string{RoleControlPlane, RoleWorker} {
			assert.False(t, isolated(testNode("prod-x-1", role, 10), contract), "%s %s", role, contract)
		}
	}

	strict := testNode("prod-general-1", RoleWorker, 30)
	strict.Patches = []string{"apiVersion: v1alpha1\nkind: SecurityProfileConfig\nworkloadIsolation: true\n"}
	assert.True(t, isolated(strict, "v1.14"), "a user may want it")
}

func TestPatchesHoldOneDocumentEach(t *testing.T) {
	t.Parallel()

	for _, contract := range contracts {
		for name, scenario := range scenarios(contract) {
			for _, node := range scenario.nodes {
				own, err := ownPatches(scenario.cluster, node, contract)
				require.NoError(t, err)

				for _, patch := range own {
					require.NoError(t, checkDocument(patch), "%s: %s", name, patch)
					assert.NotRegexp(t, separator, patch, name)
				}
			}
		}
	}
}

// TestHostnameFollowsTheContract: clusters created with Talos 1.11 keep its contract on every later version.
func TestHostnameFollowsTheContract(t *testing.T) {
	t.Parallel()

	const field, document = "machine:\n    network:\n        hostname: prod-cp-1\n",
		"apiVersion: v1alpha1\nauto: \"off\"\nhostname: prod-cp-1\nkind: HostnameConfig\n"

	for contract, want := range map[string]string{
		"v1.3": field, "v1.11": field, "v1.11.5": field, "v1.12": document, "v1.13.0": document, "v1.14.4": document,
	} {
		patches, err := ownPatches(testCluster(), testNode("prod-cp-1", RoleControlPlane, 10), contract)
		require.NoError(t, err)
		assert.Contains(t, strings.ReplaceAll(strings.Join(patches, "---\n"), "'off'", "\"off\""), want, contract)
	}

	_, err := ownPatches(testCluster(), testNode("prod-cp-1", RoleControlPlane, 10), "v1.99")
	require.ErrorContains(t, err, `contract: "v1.99" belongs to no known release: use one of v1.11, v1.12, v1.13, v1.14`)
}

func TestDiscoveryNeverUsesTheKubernetesRegistry(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change    func(*ClusterConfig)
		endpoints []string
	}{
		"public service": {func(*ClusterConfig) {}, []string{"https://discovery.talos.dev/"}},
		"private service": {
			func(c *ClusterConfig) { c.DiscoveryEndpoint = "https://discovery.example.org/" }, []string{"https://discovery.example.org/"},
		},
		"none at all": {func(c *ClusterConfig) { c.NoDiscoveryService = true }, nil},
	} {
		for _, contract := range contracts {
			t.Run(name+" "+contract, func(t *testing.T) {
				t.Parallel()

				cluster := testCluster()
				test.change(&cluster)
				cfg := generateConfig(t, cluster, testNode("prod-cp-1", RoleControlPlane, 10), contract)
				requireValid(t, cfg)

				var endpoints []string
				for _, service := range cfg.DiscoveryServiceConfigs() {
					endpoints = append(endpoints, service.Endpoint().String())
				}

				assert.Equal(t, test.endpoints, endpoints)

				if discovery := cfg.RawV1Alpha1().ClusterConfig.ClusterDiscoveryConfig; discovery != nil {
					assert.True(t, *discovery.DiscoveryRegistries.RegistryKubernetes.RegistryDisabled)
				}
			})
		}
	}
}

// TestKubernetesNetworks: explicit defaults generate the same configuration as none, so they change no running machine.
func TestKubernetesNetworks(t *testing.T) {
	t.Parallel()

	for _, contract := range contracts {
		for _, role := range []string{RoleControlPlane, RoleWorker} {
			node := testNode("prod-x-1", role, 10)
			stated, other := testCluster(), testCluster()
			stated.PodCIDRs, stated.ServiceCIDRs = prefixes("10.244.0.0/16"), prefixes("10.96.0.0/12")
			other.PodCIDRs, other.ServiceCIDRs = prefixes("10.42.0.0/16"), prefixes("10.43.0.0/16")

			before, err := generateConfig(t, testCluster(), node, contract).Bytes()
			require.NoError(t, err)
			after, err := generateConfig(t, stated, node, contract).Bytes()
			require.NoError(t, err)
			assert.Equal(t, string(before), string(after), "%s of %s", role, contract)

			configured := generateConfig(t, other, node, contract)
			requireValid(t, configured)
			network := configured.K8sNetworkConfig()
			assert.Equal(t, other.PodCIDRs, network.PodCIDRs())
			assert.Equal(t, other.ServiceCIDRs, network.ServiceCIDRs())
		}
	}
}
