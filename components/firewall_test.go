package components

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFirewall: nodes reach each other from the networks of their first devices, and from those of links with routes
// there; the ports are those of the CNI's values.
func TestFirewall(t *testing.T) {
	t.Parallel()

	prefix := netip.MustParsePrefix
	cluster := plannedCluster(1, 2)
	assert.Nil(t, clusterFirewall(cluster))

	own := prefix("10.7.0.0/24")
	cluster.Firewall = &Firewall{Admin: []netip.Prefix{prefix("10.9.0.0/24")}}
	cluster.CNI = &CNI{Hubble: true, Values: "tunnelProtocol: geneve"}
	cluster.worker(1).Network = &Network{CIDR: own}
	cluster.worker(1).Machine.ExtraNICs = []NIC{
		{Address: prefix("10.8.0.5/24"), Routes: []Route{{Destination: cluster.Network.CIDR}}},
		{Address: prefix("10.6.0.5/24"), Routes: []Route{{Destination: prefix("10.50.0.0/16")}}},
	}

	f := clusterFirewall(cluster)
	require.NotNil(t, f)
	assert.Equal(t, cluster.Firewall.Admin, f.Admin)
	assert.ElementsMatch(t, []netip.Prefix{cluster.Network.CIDR, own, prefix("10.8.0.0/24")}, f.Nodes)
	assert.Equal(t, []netip.Prefix{cluster.Network.CIDR}, f.ControlPlanes)
	assert.Equal(t, []uint16{4240, 4244}, f.CNI.TCP)
	assert.Equal(t, []uint16{6081}, f.CNI.UDP)

	cluster.Firewall.Admin = append(cluster.Firewall.Admin, prefix("10.9.0.7/24"), netip.Prefix{})
	cluster.CNI.Values = "encryption: {enabled: true, type: ipsec}"
	_, err := cluster.Validated("one")
	require.ErrorContains(t, err, "firewall.admin[1]: \"10.9.0.7/24\" is not a network; write it as 10.9.0.0/24")
	require.ErrorContains(t, err, "firewall.admin[2]: is missing")
	require.ErrorContains(t, err, "cni.values.encryption: is IPsec")
}
