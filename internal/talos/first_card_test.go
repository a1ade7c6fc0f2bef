package talos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPatchesOfTheFirstCard: the program configures the first card and the VIP. Other cards are the user's.
func TestPatchesOfTheFirstCard(t *testing.T) {
	t.Parallel()

	const (
		member = "it makes the first network card of the machine, whose addresses the program sets on the card itself, a member of "
		vip    = "it sets the VIP 10.0.0.20 on another link, and network.vip sets it on the first network card"
	)

	in := func(device string) string { return "machine: {network: {interfaces: [" + device + "]}}\n" }
	of := func(kind, rest string) string { return "apiVersion: v1alpha1\nkind: " + kind + "\n" + rest }

	for name, test := range map[string]struct {
		patch string
		want  []string
	}{
		"a bond of every card": {
			in("{interface: bond0, dhcp: true, bond: {mode: active-backup, deviceSelectors: [{driver: virtio_net}]}, vip: {ip: 10.0.0.20}}"),
			[]string{member + "bond0: use cards of extraNICs", vip},
		},
		"a bond of the card by its MAC": {
			in("{interface: bond0, bond: {mode: active-backup, deviceSelectors: [{hardwareAddr: '02:00:0a:*'}]}}"), []string{member + "bond0"},
		},
		"a bond of the card by its name": {
			in("{interface: bond0, bond: {mode: active-backup, interfaces: [ens18, ens19]}}"), []string{member + "bond0"},
		},
		"a bridge of the card": {in("{interface: br0, bridge: {interfaces: [eth0]}}"), []string{member + "br0"}},
		"a bond, as a document": {
			of("BondConfig", "name: bond1\nlinks: [enp6s18]\nbondMode: active-backup\n"), []string{member + "bond1"},
		},
		"a bridge, as a document": {of("BridgeConfig", "name: br1\nlinks: [ens18]\n"), []string{member + "br1"}},
		"the VIP on a VLAN": {
			in("{interface: ens18, vlans: [{vlanId: 7, vip: {ip: 10.0.0.20}}]}"), []string{vip},
		},
		"the VIP, as a document": {of("Layer2VIPConfig", "name: 10.0.0.20\nlink: ens19\n"), []string{vip}},

		"other cards": {
			patch: in("{interface: bond0, bond: {mode: active-backup, deviceSelectors: [{hardwareAddr: '02:00:00:*'}, {busPath: '0*'}]}, vip: {ip: 10.0.9.20}}"),
		},
		"other cards, as documents": {
			patch: of("BondConfig", "name: bond1\nlinks: [ens19]\nbondMode: active-backup\n---\n") + of("Layer2VIPConfig", "name: 10.0.9.20\nlink: bond1\n"),
		},
		"the VIP on the first card": {patch: in("{deviceSelector: {hardwareAddr: '02:00:0a:00:00:0a'}, vip: {ip: 10.0.0.20}}")},
		"more of the first card":    {patch: in("{deviceSelector: {hardwareAddr: '02:00:0a:00:00:0a'}, mtu: 1400, vlans: [{vlanId: 7, dhcp: true}]}")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := testNode("prod-cp-1", RoleControlPlane, 10)
			n.Patches = []string{test.patch}

			_, invalid, err := Plan(testGeneration("v1.14"), testCluster(), n)
			require.NoError(t, err)

			if len(test.want) == 0 {
				assert.Empty(t, invalid)

				return
			}

			require.Len(t, invalid, 1)

			for _, want := range test.want {
				assert.Contains(t, invalid[0].Reason, want)
			}
		})
	}
}
