package talos

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	blocked = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n"
	ofTalos = "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: apid\nportSelector: {ports: [50000], protocol: tcp}\n"
)

func TestFirewallIsPlanned(t *testing.T) {
	t.Parallel()

	scenario := firewalled()
	own := "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: node-exporter\nportSelector: {ports: [9100], protocol: tcp}\n" +
		"ingress: [{subnet: 10.244.0.0/16}]\n"
	assert.True(t, HasFirewallRules([]string{"machine: {}\n", own}))
	assert.False(t, HasFirewallRules([]string{"machine: {}\n", blocked}))

	for _, contract := range contracts {
		for name, test := range map[string]struct {
			patch, want string
		}{
			"a rule of the user":                                 {own, ""},
			"the program's networks":                             {ofTalos + "ingress: [{subnet: 10.0.8.0/24}]\n", "NetworkRuleConfig"},
			"the program's rule":                                 {"apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: kubelet\n$patch: delete\n", "NetworkRuleConfig"},
			"the default, which is accept as if it were not set": {strings.Replace(blocked, "block", "accept", 1), ""},
			"no default":                                         {blocked + "$patch: delete\n", "NetworkDefaultActionConfig"},
		} {
			node := scenario.nodes[0]
			node.Patches = []string{test.patch}
			g := testGeneration(contract)
			g.KubernetesVersion = newestKubernetes(contract)

			_, invalid, err := Plan(g, scenario.cluster, node)
			require.NoError(t, err, name)

			if test.want == "" {
				assert.Empty(t, invalid, name)

				continue
			}

			require.Len(t, invalid, 1, name)
			assert.Equal(t, "it changes "+test.want+", which follows from firewall in the stack file: remove that part, and set it there",
				invalid[0].Reason, name)
		}
	}
}
