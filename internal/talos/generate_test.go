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

// TestPatchesOfALaterRelease: a machine reads what its own release of Talos knows.
func TestPatchesOfALaterRelease(t *testing.T) {
	t.Parallel()

	const (
		isolation = "apiVersion: v1alpha1\nkind: SecurityProfileConfig\nworkloadIsolation: true\n"
		etcd      = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: ETCD\nprovisioning: {minSize: 1GB}\n"
		mount     = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nmount: {secure: false}\n"
		inList    = "apiVersion: v1alpha1\nkind: ResolverConfig\nsearchDomains: {domains: [a.org]}\nhostDNS: {enabled: true}\n"
		old       = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nprovisioning: {maxSize: 9GiB}\n"
	)

	remedy := func(part, release, version string) string {
		return part + " is of Talos " + release + ", and this machine runs " + version +
			": write it as that release does, or omit it"
	}

	for name, test := range map[string]struct{ version, contract, patch, want string }{
		"a document of 1.14 on 1.14": {"v1.14.4", "v1.13", isolation, ""},
		"a document of 1.14 on 1.13": {"v1.13.9", "v1.13", isolation, remedy("the document SecurityProfileConfig", "v1.14", "v1.13.9")},
		"a volume of 1.14 on 1.14":   {"v1.14.4", "v1.13", etcd, ""},
		"a volume of 1.14 on 1.13":   {"v1.13.9", "v1.13", etcd, remedy("the document VolumeConfig/ETCD", "v1.14", "v1.13.9")},
		"a field of 1.13 on 1.13":    {"v1.13.9", "v1.13", mount, ""},
		"a field of 1.13 on 1.12":    {"v1.12.6", "v1.12", mount, remedy("the field VolumeConfig.mount", "v1.13", "v1.12.6")},
		"a field of 1.14 on 1.13":    {"v1.13.9", "v1.13", inList, remedy("the field ResolverConfig.hostDNS", "v1.14", "v1.13.9")},
		"a volume of 1.12":           {"v1.12.6", "v1.12", old, ""},
		"fields of any release":      {"v1.12.6", "v1.12", "machine:\n  sysctls: {a: b}\n", ""},
		"two, in one patch": {
			"v1.13.9", "v1.13", isolation + "---\n" + etcd,
			remedy("the document SecurityProfileConfig", "v1.14", "v1.13.9") + "\n" + remedy("the document VolumeConfig/ETCD", "v1.14", "v1.13.9"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := testNode("prod-general-1", RoleWorker, 30)
			n.TalosVersion, n.Patches = test.version, []string{test.patch}

			invalid, err := CheckConfiguration(testGeneration(test.contract), testCluster(), n)
			require.NoError(t, err)

			if test.want == "" {
				assert.Empty(t, invalid)
			} else {
				assert.Equal(t, []PatchError{{Reason: test.want}}, invalid)
			}
		})
	}

	_, err := SplitPatch("apiVersion: v1alpha1\nkind: MacVLANConfig\nname: lan0\nparent: eth0\n")
	require.ErrorContains(t, err, "not accepted by Talos", "of a release that this program does not know")
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
