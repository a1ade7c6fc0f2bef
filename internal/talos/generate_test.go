package talos

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func testGeneration(contract string) Generation {
	return Generation{
		ClusterName: "prod", Endpoint: "https://10.0.0.20:6443", KubernetesVersion: "v1.35.0", Contract: contract,
	}
}

// TestCheckConfiguration: patches that Talos' loader accepts make configurations that a machine rejects. The conflicts
// are those of Talos 1.12 and later (pkg/machinery/config/types: V1Alpha1ConflictValidate).
func TestCheckConfiguration(t *testing.T) {
	t.Parallel()

	const (
		stableHostname = "machine: {features: {stableHostname: true}}\n"
		resolver       = "{apiVersion: v1alpha1, kind: ResolverConfig, nameservers: [{address: 10.0.0.1}]}\n"
		harmless       = "machine: {sysctls: {vm.swappiness: \"1\"}}\n"
	)

	for name, test := range map[string]struct {
		contract      string
		cluster, node []string
		role          string
		want          []PatchError
	}{
		"no patch":                   {contract: "v1.13"},
		"patches that are accepted":  {contract: "v1.13", cluster: []string{harmless}, node: []string{harmless}},
		"a worker":                   {contract: "v1.13", node: []string{harmless}, role: RoleWorker},
		"an older contract has this": {contract: "v1.11", cluster: []string{stableHostname}},
		"a host name in two places, in a patch of the cluster": {
			contract: "v1.12", cluster: []string{harmless, stableHostname}, node: []string{harmless},
			want: []PatchError{{OfCluster: true, Index: 1, Reason: "stable hostname is already set in v1alpha1 config"}},
		},
		"name servers in two places, in a patch of a node": {
			contract: "v1.13", cluster: []string{harmless}, node: []string{resolver}, role: RoleWorker,
			want: []PatchError{{Index: 0, Reason: ".machine.network.nameservers is already set in v1alpha1 config"}},
		},
		"each patch that is wrong": {
			contract: "v1.13", cluster: []string{stableHostname},
			node: []string{harmless, "machine: {network: {interfaces: [{interface: eth9, addresses: [nine]}]}}\n"},
			want: []PatchError{
				{OfCluster: true, Index: 0, Reason: "stable hostname is already set in v1alpha1 config"},
				{Index: 1, Reason: `v1alpha1.Config: [networking.os.device.addresses] "eth9": failed to parse IP address "nine"`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c, n := testCluster(), testNode("prod-cp-1", RoleControlPlane, 10)
			c.Patches, n.Patches = test.cluster, test.node

			if test.role != "" {
				n.Role = test.role
			}

			invalid, err := CheckConfiguration(testGeneration(test.contract), c, n)
			require.NoError(t, err)
			assert.Equal(t, test.want, invalid)
		})
	}
}

// TestCheckConfigurationBlamesNoPatch: what is wrong without any patch is nobody's patch.
func TestCheckConfigurationBlamesNoPatch(t *testing.T) {
	t.Parallel()

	g, n := testGeneration("v1.13"), testNode("prod-cp-1", RoleControlPlane, 10)
	g.Endpoint, n.Patches = "not a URL", []string{"machine: {sysctls: {vm.swappiness: \"1\"}}\n"}

	invalid, err := CheckConfiguration(g, testCluster(), n)
	require.ErrorContains(t, err, `machine configuration of "prod-cp-1"`)
	assert.Empty(t, invalid)
}

// TestGeneratedConfigurations: the checked configuration is the one that the golden files have.
func TestGeneratedConfigurations(t *testing.T) {
	t.Parallel()

	bundle, err := fakeSecrets()
	require.NoError(t, err)

	for name, scenario := range scenarios() {
		for _, n := range scenario.nodes {
			g := testGeneration("v1.13")
			g.KubernetesVersion = newestKubernetes(g.Contract)
			g.Endpoint = "https://" + n.Interfaces[0].Address.Addr().String() + ":6443"

			if scenario.cluster.VIP.IsValid() {
				g.Endpoint = "https://" + scenario.cluster.VIP.String() + ":6443"
			}

			generated, err := generateForRole(g, n.Role, bundle)
			require.NoError(t, err, name)

			own, err := ownPatches(scenario.cluster, n, g.Contract)
			require.NoError(t, err, name)

			generated, err = patchAndValidate(generated, slices.Concat(own, scenario.cluster.Patches, n.Patches))
			require.NoError(t, err, name)

			text, err := generated.EncodeString()
			require.NoError(t, err)

			asProvider, err := generateConfig(t, scenario.cluster, n, g.Contract).EncodeString()
			require.NoError(t, err)

			paths, err := ConfigurationDifferences(text, asProvider)
			require.NoError(t, err)
			assert.Empty(t, paths, "%s: %s", name, n.Name)
		}
	}
}

// BenchmarkCheckConfiguration is the cost of fifty nodes before anything is registered.
func BenchmarkCheckConfiguration(b *testing.B) {
	c, n := testCluster(), testNode("prod-cp-1", RoleControlPlane, 10)
	c.Patches = []string{"machine: {sysctls: {vm.swappiness: \"1\"}}\n"}

	check := func() {
		invalid, err := CheckConfiguration(testGeneration("v1.13"), c, n)
		require.NoError(b, err)
		require.Empty(b, invalid)
	}
	check() // generates the placeholders

	for b.Loop() {
		for range 50 {
			check()
		}
	}
}
