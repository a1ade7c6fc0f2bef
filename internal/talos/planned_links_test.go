package talos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPatchesOfLinks: the program configures the links of the stack file. Cards without addresses are the user's.
func TestPatchesOfLinks(t *testing.T) {
	t.Parallel()

	in := func(device string) string { return "machine: {network: {interfaces: [" + device + "]}}\n" }
	of := func(kind, rest string) string { return "apiVersion: v1alpha1\nkind: " + kind + "\n" + rest }

	const bond = "which follows from bonds in the stack file: remove that part, and set it there"

	for name, test := range map[string]struct{ patch, want string }{
		"a card of a bond in another one": {
			in("{interface: bond9, bond: {mode: active-backup, deviceSelectors: [{permanentAddr: '02:00:0a:00:01:02'}]}}"),
			"it makes the card of extraNICs[1], which is in bond0, a member of bond9: remove that part",
		},
		"a card with DHCP in a bond": {
			of("BondConfig", "name: bond9\nlinks: [enp6s22]\nbondMode: active-backup\n"),
			"it makes the card of extraNICs[3], which has addresses or VLANs of its own, a member of bond9: put the card into one of " +
				"bonds instead, or set dhcp: false for it",
		},
		"a planned bond": {in("{interface: bond0, bond: {mode: balance-rr, interfaces: [ens23]}}"), "it defines the link bond0, " + bond},
		"a planned bond, as a document": {
			of("BondConfig", "name: bond1\nlinks: [ens23]\nbondMode: active-backup\n"), "it defines the link bond1, " + bond,
		},
		"addresses of a planned bond, as a document": {
			of("LinkConfig", "name: bond1\naddresses: [{address: 10.0.90.1/24}]\n"), "it defines the link bond1, " + bond,
		},
		"a planned VLAN by its name": {of("VLANConfig", "name: bond0.31\nparent: bond0\nvlanID: 131\n"), "it defines the link bond0.31, " + bond},
		"a planned VLAN on a bond": {
			of("VLANConfig", "name: storage\nparent: bond0\nvlanID: 31\n"), "it defines VLAN 31 of a link, which is one of vlans in the stack file",
		},
		"a planned VLAN on the first card": {
			in("{deviceSelector: {hardwareAddr: '02:00:0a:00:00:0a'}, vlans: [{vlanId: 30, dhcp: true}]}"), "it defines VLAN 30 of a link",
		},
		"another mode of a planned bond, without its definition": {
			in("{interface: bond0, mtu: 1400}"), "it changes machine.network.interfaces, which follows from network, extraNICs, bonds and vlans",
		},
		"search domains and a static host": {
			of("ResolverConfig", "searchDomains: {domains: [example.com]}\n---\n") + of("StaticHostConfig", "name: 10.0.0.4\n$patch: delete\n"),
			"it changes ResolverConfig.searchDomains, which follows from network.searchDomains in the stack file: remove that part, and set " +
				"it there; it changes StaticHostConfig, which follows from network.staticHosts in the stack file",
		},
		"destinations of logs and authenticated time servers": {
			"machine: {logging: {destinations: [{$patch: delete, endpoint: 'tcp://10.0.0.7:6050'}]}}\n---\n" +
				of("KmsgLogConfig", "name: destination-1\n$patch: delete\n---\n") + of("TimeSyncConfig", "ntp: {useNTS: false}\n"),
			"it changes TimeSyncConfig.ntp.useNTS, which follows from network.nts in the stack file: remove that part, and set it there; " +
				"it changes machine.logging.destinations, which follows from logDestinations in the stack file: remove that part, and set it there; " +
				"it changes KmsgLogConfig, which follows from logDestinations in the stack file",
		},

		"another key of the tailnet": {
			of("ExtensionServiceConfig", "name: tailscale\n$patch: delete\n---\n") +
				of("ExtensionServiceConfig", "name: tailscale\nenvironment: [TS_AUTHKEY=other]\n"),
			"it changes ExtensionServiceConfig, which follows from tailscale in the stack file",
		},
		"another service": {patch: of("ExtensionServiceConfig", "name: cloudflared\nenvironment: [TUNNEL_TOKEN=x]\n")},

		"a bridge of a free card":     {patch: of("BridgeConfig", "name: br9\nlinks: [ens23]\n")},
		"another VLAN":                {patch: of("VLANConfig", "name: bond0.99\nparent: bond0\nvlanID: 99\n")},
		"another static host":         {patch: of("StaticHostConfig", "name: 10.0.0.7\nhostnames: [other]\n")},
		"a client identifier of DHCP": {patch: of("DHCPv4Config", "name: bond0.32\nclientIdentifier: mac\n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := withLinks("prod-cp-1", RoleControlPlane, 10)
			n.Patches = []string{test.patch}

			cluster := testCluster()
			cluster.Tailscale = &Tailscale{AuthKey: "tskey-auth-fake"}
			cluster.NTS, cluster.LogDestinations = true, []string{"tcp://10.0.0.7:6050"}

			_, invalid, err := Plan(testGeneration("v1.14"), cluster, n)
			require.NoError(t, err)

			if test.want == "" {
				assert.Empty(t, invalid)

				return
			}

			require.Len(t, invalid, 1)
			assert.Contains(t, invalid[0].Reason, test.want)
		})
	}
}

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
