package components

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// TestProxmoxFirewall: the rules are those of the machine configuration, patches included, and the cards on which the
// machine has an address are filtered.
func TestProxmoxFirewall(t *testing.T) {
	t.Parallel()

	prefix := netip.MustParsePrefix
	cluster := plannedCluster(1, 1)
	cluster.Firewall = &Firewall{
		Admin: []netip.Prefix{prefix("10.9.0.0/24")}, Proxmox: &ProxmoxFirewall{SecurityGroups: []string{"web"}},
	}
	cluster.CNI = &CNI{LoadBalancer: []AddressRange{
		{First: netip.MustParseAddr("127.1.1.200"), Last: netip.MustParseAddr("127.1.1.210")},
	}}
	cluster.Patches = []string{"apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: mine\n" +
		"portSelector: {ports: [9100], protocol: tcp}\ningress: [{subnet: 10.8.0.0/24}]\n"}
	cluster.worker(0).Machine.ExtraNICs = []NIC{
		{Bridge: "vmbr1", MAC: "02:00:00:00:07:01", Address: prefix("10.6.0.5/24")},
		{Bridge: "vmbr1", MAC: "02:00:00:00:07:02", Bond: "bond0"},
		{Bridge: "vmbr1", MAC: "02:00:00:00:07:03", NoAddress: true},
	}
	cluster.worker(0).Bonds = []Bond{{Name: "bond0", Mode: "active-backup", MIIMon: 100}}

	r := runCluster(t, enginetest.Options{}, cluster)

	var filtered []bool
	for _, card := range r.ByType(tokens.VirtualMachine)["one-general-1-vm"].Input("networkDevices").ArrayValue() {
		filtered = append(filtered, card.ObjectValue()["firewall"].BoolValue())
	}

	assert.Equal(t, []bool{true, true, false, false}, filtered)

	command, registered := r.ByType(tokens.LocalCommand)["one-general-1-firewall"]
	require.True(t, registered)
	assert.Contains(t, command.Input("delete").StringValue(), " firewall --remove")
	assert.Equal(t, "one-general-1-vm", resource.URN(command.Request.GetDeletedWith()).Name())
	assert.True(t, command.Input("stdin").IsSecret())

	var (
		req   request.Firewall
		waits []string
	)

	require.NoError(t, json.Unmarshal([]byte(command.Input("stdin").SecretValue().Element.StringValue()), &req))

	for _, urn := range command.Request.GetDependencies() {
		waits = append(waits, resource.URN(urn).Name())
	}

	assert.Contains(t, waits, "one-general-1-configuration")
	assert.Equal(t, "one-general-1", req.Machine)

	byComment := map[string]request.FirewallRule{}
	for _, rule := range req.Rules {
		byComment[rule.Comment] = rule
	}

	network := cluster.Network.CIDR.String()
	for _, want := range []request.FirewallRule{
		{Type: "in", Action: "ACCEPT", Proto: "tcp", DPort: "50000", Source: "10.9.0.0/24," + network, Comment: "apid"},
		{Type: "in", Action: "ACCEPT", Proto: "tcp", DPort: "9100", Source: "10.8.0.0/24", Comment: "mine"},
		{Type: "in", Action: "ACCEPT", Dest: "127.1.1.200-127.1.1.210", Comment: "services"},
		{Type: "in", Action: "ACCEPT", Source: network + "," + talos.DefaultPodCIDR, Dest: talos.DefaultPodCIDR, Comment: "pods"},
		{Type: "group", Action: "web", Comment: "security group"},
	} {
		assert.Equal(t, want, byComment[want.Comment])
	}

	assert.NotContains(t, byComment, "etcd", "it is a worker")

	cluster.Firewall.Proxmox.SecurityGroups = []string{"1st"}
	_, err := cluster.Validated("one")
	require.ErrorContains(t, err, "firewall.proxmox.securityGroups[0]")
}

// TestRulesOfProxmox: a rule has at most 15 ports, ten networks and one family.
func TestRulesOfProxmox(t *testing.T) {
	t.Parallel()

	a := talos.Admitted{Rule: "mine", Protocol: "tcp"}
	for port := range uint16(8) {
		a.Ports = append(a.Ports, [2]uint16{2 * port, 2*port + 1})
	}

	for i := range byte(11) {
		a.Sources = append(a.Sources, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i, 0, 0}), 16))
	}

	a.Sources = append(a.Sources, netip.MustParsePrefix("fd00:1::/64"), a.Sources[0])

	rules := rulesOf(a)
	require.Len(t, rules, 6)
	assert.Equal(t, "0:1,2:3,4:5,6:7,8:9,10:11,12:13", rules[0].DPort)
	assert.Equal(t, "14:15", rules[1].DPort)
	assert.Equal(t, "10.10.0.0/16", rules[2].Source)
	assert.Equal(t, "fd00:1::/64", rules[5].Source)

	assert.Equal(t, []request.FirewallRule{{Proto: "ipv6-icmp", Source: "fd00:1::/64", Comment: "mine"}},
		rulesOf(talos.Admitted{Rule: "mine", Protocol: "icmpv6", Ports: a.Ports[:1], Sources: a.Sources[11:12]}))
}
