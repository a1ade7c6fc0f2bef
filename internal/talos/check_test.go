package talos

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSplitPatch(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		text string
		want []string
		err  string
	}{
		"one document": {"machine:\n  sysctls:\n    a: b", []string{"machine:\n  sysctls:\n    a: b\n"}, ""},
		"two documents with empty ones around": {
			"---\nmachine:\n  sysctls: {a: b}\n--- # the second\r\ncluster:\n  proxy: {disabled: true}\n---\n",
			[]string{"machine:\n  sysctls: {a: b}\n", "cluster:\n  proxy: {disabled: true}\n"},
			"",
		},
		"a rule inside a text is not a separator": {
			"machine:\n  files:\n    - content: |\n        ---\n        a\n      path: /var/a\n",
			[]string{"machine:\n  files:\n    - content: |\n        ---\n        a\n      path: /var/a\n"},
			"",
		},
		"removing something": {
			"machine:\n  nodeLabels:\n    example.org/a:\n      $patch: delete\n",
			[]string{"machine:\n  nodeLabels:\n    example.org/a:\n      $patch: delete\n"},
			"",
		},
		"nothing":          {" \n", nil, "the patch is empty"},
		"an unknown field": {"machine:\n  kubelett: {}\n", nil, "kubelett"},
		"an unknown kind":  {"apiVersion: v1alpha1\nkind: Nonsense\n", nil, "Nonsense"},
		"no YAML":          {"machine: [\n", nil, "the patch is not accepted by Talos"},
		"a file's name":    {"@patch.yaml", nil, `"@patch.yaml" names a file: set the patch's text`},
		"a JSON patch": {
			`[{"op": "add", "path": "/machine/type", "value": "worker"}]`, nil, "write a strategic-merge patch",
		},
		"a JSON patch, YAML": {"- op: add\n  path: /machine/type\n  value: worker\n", nil, "write a strategic-merge patch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			documents, err := SplitPatch(test.text)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, test.want, documents)
		})
	}
}

func TestOwnPatchesReportEverythingAtOnce(t *testing.T) {
	t.Parallel()

	gateway := netip.MustParseAddr("10.0.0.1")
	_, err := ownPatches(
		ClusterConfig{},
		NodeConfig{
			Name: "Prod_1",
			Role: "master",
			Interfaces: []Interface{
				{MAC: "02:00", Link: Link{DHCP: true, Gateway: gateway}, VLANs: []VLAN{{ID: 4095, Link: Link{MTU: 100}}}},
				{MAC: "02:00:00:00:00:01", Link: Link{MTU: 70000, Routes: []Route{{}}}},
				{MAC: "02:00:00:00:00:02", Bond: "bond9"},
			},
			Bonds:   []Bond{{Name: "bond0", VLANs: []VLAN{{ID: 0}}}},
			Volumes: []Volume{{Name: "a_b"}},
			Labels:  map[string]string{"not a label": ""},
			Taints:  map[string]string{"example.org/gpu": "true:Sometimes"},
		},
		"1.12",
	)
	require.Error(t, err)

	for _, want := range []string{
		`machine configuration of "Prod_1"`, `role: "master"`, "subnet: is missing",
		`name: "Prod_1"`, "install image: is missing",
		`interfaces[0].mac: "02:00"`, "interfaces[0].gateway: 10.0.0.1", "interfaces[0].vlans[0].id: 4095",
		"interfaces[0].vlans[0].mtu: 100",
		"interfaces[1].mtu: 70000", "interfaces[1].routes[0]", `interfaces[2].bond: "bond9"`, `bonds[0]: "bond0" has no network cards`,
		"bonds[0].vlans[0].id: 0", `volumes[0].name: "a_b"`, "volumes[0].sizeGiB: 0", "labels:", "taints:",
		`contract: "1.12"`,
	} {
		assert.ErrorContains(t, err, want)
	}
}

func TestOwnPatchesRefuseBadInput(t *testing.T) {
	t.Parallel()

	withoutCard := testNode("prod-cp-1", RoleControlPlane, 10)
	withoutCard.Interfaces = nil
	_, err := ownPatches(testCluster(), withoutCard, "v1.12")
	require.ErrorContains(t, err, "interfaces: is missing")

	_, err = ownPatches(ClusterConfig{}, testNode("prod-x-1", "init", 10), "v1.12")
	require.ErrorContains(t, err, `role: "init"`)
}

func TestUserPatchesComeLast(t *testing.T) {
	t.Parallel()

	cluster, node := testCluster(), testNode("prod-cp-1", RoleControlPlane, 10)
	cluster.Patches = []string{"machine:\n  sysctls: {a: cluster}\n"}
	node.Patches = []string{"machine:\n  sysctls: {a: node}\n"}

	planned, invalid, err := Plan(testGeneration("v1.12"), cluster, node)
	require.NoError(t, err)
	require.Empty(t, invalid)

	own := len(planned.Patches) - 2
	assert.Equal(t, append(cluster.Patches, node.Patches...), planned.Patches[own:])
	assert.NotContains(t, strings.Join(planned.Patches[:own], ""), "sysctls")
}
