package cilium

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVersions(t *testing.T) {
	t.Parallel()

	for kubernetes, want := range map[string]string{
		"v1.29.0": "", "v1.30.4": "1.18.12", "v1.32.0": "1.19.6", "v1.33.0": "1.20.2", "v1.36.0": "1.20.2",
		"v1.37.2": "1.20.2",
	} {
		assert.Equal(t, want, DefaultVersion(kubernetes), kubernetes)
	}

	require.NoError(t, Check("1.19.6", "v1.35.0"))
	require.NoError(t, Check("1.99.0", "v1.35.0"), "an unknown version")
	require.NoError(t, Check("1.20.2", "v1.37.2"), "Cilium leaves it to Kubernetes, and there is no newer one")
	require.ErrorContains(t, Check("1.20.2", "v1.32.9"),
		"is tested by Cilium on Kubernetes v1.33 to v1.36, not on v1.32.9; set 1.19.6")
	require.ErrorContains(t, Check("1.19.6", "v1.36.0"),
		"is tested by Cilium on Kubernetes v1.32 to v1.35, not on v1.36.0; set 1.20.2")
	require.ErrorContains(t, Check("1.19.6", "v1.37.2"), "set 1.20.2")
	assert.Equal(t, "Cilium tests 1.20.2 on Kubernetes v1.33 to v1.36, and not yet on v1.37.2", Untested("1.20.2", "v1.37.2"))
	assert.Empty(t, Untested("1.20.2", "v1.36.4"))
	assert.Empty(t, Untested("1.99.0", "v1.37.2"), "an unknown version")
	require.ErrorContains(t, Check("1.18.12", "v1.29.4"), "choose a newer version of Kubernetes")
}

func TestValues(t *testing.T) {
	t.Parallel()

	values := func(s Settings) string {
		text, err := json.Marshal(s.Values())
		require.NoError(t, err)

		return string(text)
	}

	plain := values(Settings{Nodes: 1})
	for _, want := range []string{
		`"cgroup":{"autoMount":{"enabled":false},"hostRoot":"/sys/fs/cgroup"}`, `"ipam":{"mode":"kubernetes"}`,
		`"k8sServiceHost":"localhost","k8sServicePort":7445,"kubeProxyReplacement":true`,
		`"operator":{"replicas":1}`, `"hubble":{"enabled":false}`, `"rollOutCiliumPods":true`,
	} {
		assert.Contains(t, plain, want)
	}

	assert.NotContains(t, plain, "SYS_MODULE")
	assert.NotContains(t, plain, "ipv6")
	assert.Contains(t, values(Settings{Nodes: 1, IPv6: true}), `"ipv6":{"enabled":true}`)
	assert.False(t, AnnouncesIPv6("1.18.12"))
	assert.True(t, AnnouncesIPv6("1.19.6"))
	assert.True(t, AnnouncesIPv6("2.0.0"))

	whole := values(Settings{
		Nodes: 6, Hubble: true, GatewayAPI: true,
		Pool: []AddressRange{{netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("10.0.0.210")}},
		Own:  map[string]any{"operator": map[string]any{"prometheus": map[string]any{"enabled": true}}, "MTU": 1400},
	})
	for _, want := range []string{
		`"operator":{"podAnnotations":{"talos-proxmox/gateway-api":"true"},"prometheus":{"enabled":true},"replicas":2}`, `"MTU":1400`, `"l2announcements":{"enabled":true}`,
		`"method":"cronJob"`, `"gatewayClass":{"create":"true"}`,
	} {
		assert.Contains(t, whole, want)
	}

	assert.Len(t, CheckValues(map[string]any{
		"k8sServicePort": 6443, "hubble": map[string]any{"enabled": true, "relay": map[string]any{}},
		"bpf": map[string]any{"masquerade": true},
	}), 3)
	assert.Empty(t, CheckValues(map[string]any{"bpf": map[string]any{"masquerade": true, "hostLegacyRouting": true}}))
}

func TestObjects(t *testing.T) {
	t.Parallel()

	settings := Settings{Pool: []AddressRange{{netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("10.0.0.210")}}, Interfaces: []string{"^ens"}}
	text, err := json.Marshal(settings.Objects())
	require.NoError(t, err)
	assert.Contains(t, string(text), `"spec":{"blocks":[{"start":"10.0.0.200","stop":"10.0.0.210"}]}`)
	assert.Contains(t, string(text), `"spec":{"interfaces":["^ens"],"loadBalancerIPs":true}`)
	assert.Empty(t, Settings{}.Objects())

	settings.BGP = &BGP{
		LocalASN: 64513, Multihop: 2, HoldTimeSeconds: 9, Password: "hunter2",
		Peers: []BGPPeer{{netip.MustParseAddr("10.0.0.1"), 64512}, {netip.MustParseAddr("10.0.0.2"), 64512}},
	}
	text, err = json.Marshal(settings.Objects())
	require.NoError(t, err)

	for _, want := range []string{
		`"bgpInstances":[{"localASN":64513,"name":"talos-proxmox","peers":[{"name":"10.0.0.1","peerASN":64512,"peerAddress":"10.0.0.1","peerConfigRef":{"name":"talos-proxmox"}},{"name":"10.0.0.2"`,
		`"ebgpMultihop":2`, `"timers":{"holdTimeSeconds":9,"keepAliveTimeSeconds":3}`, `"stringData":{"password":"hunter2"}`,
		`"authSecretRef":"talos-proxmox-bgp"`, `"selector":{}`,
	} {
		assert.Contains(t, string(text), want)
	}

	assert.NotContains(t, string(text), "CiliumL2AnnouncementPolicy")

	values := settings.Values()
	assert.Contains(t, values, "bgpControlPlane")
	assert.NotContains(t, values, "l2announcements")

	gateway := Settings{GatewayAPI: true}
	assert.Equal(t, "https://raw.githubusercontent.com/kubernetes-sigs/gateway-api/v1.4.1/config/crd/standard/"+
		"gateway.networking.k8s.io_gatewayclasses.yaml", gateway.Definitions("1.19.6", "")[0].Source)
	assert.Equal(t, "/srv/gateway.networking.k8s.io_gatewayclasses.yaml", gateway.Definitions("1.19.6", "/srv/")[0].Source)
	assert.Empty(t, Settings{}.Definitions("1.19.6", ""))
}

// TestAbsentObjects changes between all ways to announce addresses: what one leaves behind is what the next removes.
func TestAbsentObjects(t *testing.T) {
	t.Parallel()

	pool := []AddressRange{{netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("10.0.0.210")}}
	peers := []BGPPeer{{netip.MustParseAddr("10.0.0.1"), 64512}}
	ways := map[string]Settings{
		"none": {}, "ARP": {Pool: pool}, "BGP": {Pool: pool, BGP: &BGP{LocalASN: 1, Peers: peers}},
		"BGP with a password": {Pool: pool, BGP: &BGP{LocalASN: 1, Peers: peers, Password: "x"}},
	}

	kinds := func(s Settings) []string {
		var list []string

		for _, o := range s.Objects() {
			kind, ok := o["kind"].(string)
			require.True(t, ok)

			list = append(list, kind)
		}

		return list
	}

	for from, before := range ways {
		for to, after := range ways {
			left := kinds(before)
			for _, name := range after.Absent() {
				left = slices.DeleteFunc(left, func(kind string) bool { return kind == name.Kind })

				assert.NotContains(t, kinds(after), name.Kind, to)
			}

			assert.Subset(t, kinds(after), left, "from %s to %s", from, to)
		}
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		settings Settings
		tcp, udp []uint16
	}{
		"defaults": {Settings{}, []uint16{4240}, []uint16{8472}},
		"Hubble":   {Settings{Hubble: true}, []uint16{4240, 4244}, []uint16{8472}},
		"Geneve, and a health port of its own": {
			Settings{Own: map[string]any{
				"tunnelProtocol": "geneve", "clusterHealthPort": 9940.0,
			}},
			[]uint16{9940},
			[]uint16{6081},
		},
		"a port of the tunnel": {Settings{Own: map[string]any{"tunnelPort": 4789}}, []uint16{4240}, []uint16{4789}},
		"native routing and WireGuard": {
			Settings{Own: map[string]any{
				"routingMode": "native", "encryption": map[string]any{"enabled": true, "type": "wireguard"},
			}},
			[]uint16{4240},
			[]uint16{51871},
		},
	} {
		tcp, udp := test.settings.Ports()
		assert.Equal(t, test.tcp, tcp, name)
		assert.Equal(t, test.udp, udp, name)
	}

	assert.True(t, UsesIPsec(map[string]any{"encryption": map[string]any{"enabled": true}}))
	assert.False(t, UsesIPsec(map[string]any{"encryption": map[string]any{"enabled": true, "type": "wireguard"}}))
	assert.False(t, UsesIPsec(map[string]any{"encryption": map[string]any{"type": "ipsec"}}))
}
