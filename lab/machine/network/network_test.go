package network_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/network"
)

const (
	firstMAC  = "02:00:00:00:00:01"
	secondMAC = "02:00:00:00:00:02"
)

func legacy(network string) string {
	return "machine:\n  type: worker\n  network:\n" + network +
		"cluster:\n  controlPlane:\n    endpoint: https://127.9.0.11:6443\n"
}

// nocloud is a static address of the platform.
var nocloud = &datacentre.CloudInit{
	Hostname: "node-1", DNS: []netip.Addr{netip.MustParseAddr("127.9.0.3")},
	Interfaces: []datacentre.CloudInitInterface{
		{
			MAC: "02:00:00:00:00:01", Address: netip.MustParsePrefix("127.9.0.21/24"), Gateway: netip.MustParseAddr("127.9.0.1"),
		},
	},
}

// dualStack is a static address of each family.
var dualStack = &datacentre.CloudInit{
	Hostname: "node-1",
	Interfaces: []datacentre.CloudInitInterface{
		{
			MAC: "02:00:00:00:00:01", Address: netip.MustParsePrefix("127.9.0.21/24"),
			AddressIPv6: netip.MustParsePrefix("fd00:1::15/64"),
		},
	},
}

var networkCases = map[string]struct {
	platform  string
	cloudInit *datacentre.CloudInit
	leases    map[string]string
	config    string
	addresses []string
	node      string
	nodeIPv6  string
	warning   string
}{
	"nocloud data on the nocloud platform": {
		platform: "nocloud", cloudInit: nocloud, addresses: []string{"127.9.0.21/24"}, node: "127.9.0.21",
	},
	"metal ignores nocloud data": {
		platform:  "metal",
		cloudInit: nocloud,
		leases:    map[string]string{firstMAC: "127.9.0.101/24"},
		addresses: []string{"127.9.0.101/24"},
		node:      "127.9.0.101",
		warning:   "no DHCP server answers ens19",
	},

	"DHCP on every card without any configuration": {
		platform: "nocloud", leases: map[string]string{firstMAC: "127.9.0.101/24", secondMAC: "127.9.1.101/24"},
		addresses: []string{"127.9.0.101/24", "127.9.1.101/24"}, node: "127.9.0.101",
	},
	"a static address by MAC ends DHCP on that card": {
		platform: "nocloud", leases: map[string]string{firstMAC: "127.9.0.101/24"},
		config:    legacy("    interfaces:\n      - deviceSelector:\n          hardwareAddr: \"02:00:00:00:00:01\"\n        addresses: [127.9.0.41/24]\n"),
		addresses: []string{"127.9.0.41/24"}, node: "127.9.0.41",
	},
	"the configuration repeats the platform's address": {
		platform: "nocloud", cloudInit: nocloud,
		config:    legacy("    interfaces:\n      - deviceSelector:\n          hardwareAddr: \"02:00:00:00:00:01\"\n        addresses: [127.9.0.21/24]\n"),
		addresses: []string{"127.9.0.21/24"}, node: "127.9.0.21",
	},
	"the configuration adds an address to the platform's": {
		platform: "nocloud", cloudInit: nocloud,
		config:    legacy("    interfaces:\n      - deviceSelector:\n          hardwareAddr: \"02:00:00:00:00:01\"\n        addresses: [127.9.0.41/24]\n"),
		addresses: []string{"127.9.0.21/24", "127.9.0.41/24"}, node: "127.9.0.21",
	},
	"the kubelet's subnets choose the node address": {
		platform: "nocloud", cloudInit: nocloud,
		config: "machine:\n  type: worker\n  kubelet:\n    nodeIP:\n      validSubnets: [127.9.1.0/24]\n  network:\n    interfaces:\n      - interface: ens19\n        addresses: [127.9.1.41/24]\n" +
			"cluster:\n  controlPlane:\n    endpoint: https://127.9.0.11:6443\n",
		addresses: []string{"127.9.0.21/24", "127.9.1.41/24"}, node: "127.9.1.41",
	},
	"no address outside the networks of pods and services": {
		platform: "nocloud", cloudInit: nocloud,
		config:    "machine:\n  type: worker\ncluster:\n  controlPlane:\n    endpoint: https://127.9.0.11:6443\n  network:\n    podSubnets: [127.8.0.0/15]\n",
		addresses: []string{"127.9.0.21/24"}, warning: "no address is outside cluster.network.podSubnets and serviceSubnets",
	},
	"addresses of both families, beside one from a router": {
		platform: "nocloud", cloudInit: dualStack,
		config: "machine:\n  type: worker\n  kubelet:\n    nodeIP:\n      validSubnets: [127.9.0.0/24, fd00:1::15/128]\n" +
			"  network:\n    interfaces:\n      - interface: ens18\n        addresses: [\"fd00:1::2/64\"]\n" +
			"cluster:\n  controlPlane:\n    endpoint: https://127.9.0.11:6443\n",
		addresses: []string{"127.9.0.21/24", "fd00:1::2/64", "fd00:1::15/64"}, node: "127.9.0.21", nodeIPv6: "fd00:1::15",
	},
	"an address in the service network is skipped": {
		platform: "nocloud", cloudInit: nocloud,
		config: "machine:\n  type: worker\n  network:\n    interfaces:\n      - interface: ens19\n        addresses: [127.9.1.41/24]\n" +
			"cluster:\n  controlPlane:\n    endpoint: https://127.9.0.11:6443\n  network:\n    serviceSubnets: [127.9.0.0/24]\n",
		addresses: []string{"127.9.0.21/24", "127.9.1.41/24"}, node: "127.9.1.41",
	},
	"a document of a link has no effect": {
		platform: "nocloud", cloudInit: nocloud,
		config: legacy("    {}\n") +
			"---\napiVersion: v1alpha1\nkind: LinkConfig\nname: ens18\naddresses:\n  - address: 127.9.0.51/24\n",
		addresses: []string{"127.9.0.21/24"}, node: "127.9.0.21",
		warning: "machine.network.interfaces only",
	},
	"a VLAN on a card": {
		platform:  "nocloud",
		config:    legacy("    interfaces:\n      - interface: ens18\n        vlans:\n          - vlanId: 100\n            addresses: [127.9.2.41/24]\n"),
		addresses: []string{"127.9.2.41/24"}, node: "127.9.2.41",
	},
	"an interface by another version's name": {
		platform:  "nocloud",
		cloudInit: nocloud,
		config:    legacy("    interfaces:\n      - interface: eth0\n        addresses: [127.9.0.41/24]\n"),
		addresses: []string{"127.9.0.21/24"},
		node:      "127.9.0.21",
		warning:   "no network device matches an interface of the configuration (eth0)",
	},
}

func TestNetworkPlan(t *testing.T) {
	t.Parallel()

	for name, test := range networkCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			m := network.Machine{
				Platform: test.platform, CloudInit: test.cloudInit,
				NICs: []datacentre.NIC{
					{Name: "net0", Model: "virtio", MAC: firstMAC, Bridge: "vmbr0"},
					{Name: "net1", Model: "virtio", MAC: secondMAC, Bridge: "vmbr1"},
				},
				Lease: func(_, mac string) (datacentre.Lease, bool) {
					text, ok := test.leases[mac]
					if !ok {
						return datacentre.Lease{}, false
					}

					return datacentre.Lease{
						Address: netip.MustParsePrefix(text),
						Gateway: netip.MustParseAddr("127.9.0.1"),
						DNS:     []netip.Addr{netip.MustParseAddr("127.9.0.2")},
					}, true
				},
			}

			var cfg config.Config

			if test.config != "" {
				loaded, err := configloader.NewFromBytes([]byte(test.config))
				require.NoError(t, err)

				cfg = loaded
			}

			plan := m.Plan(cfg)

			var addresses []string
			for _, p := range plan.Addresses {
				addresses = append(addresses, p.String())
			}

			assert.Equal(t, test.addresses, addresses)

			if test.node != "" {
				assert.Equal(t, test.node, plan.Node.String())
			} else {
				assert.False(t, plan.Node.IsValid())
			}

			if test.nodeIPv6 != "" {
				assert.Equal(t, test.nodeIPv6, plan.NodeIPv6.String())
			} else {
				assert.False(t, plan.NodeIPv6.IsValid())
			}

			if test.warning != "" {
				assert.Contains(t, strings.Join(plan.Warnings, "\n"), test.warning)
			}
		})
	}
}

// TestLinks: what machines report of bonds, VLANs and routes.
func TestLinks(t *testing.T) {
	t.Parallel()

	bond := func(selectors string) string {
		return "    interfaces:\n      - deviceSelector: {hardwareAddr: \"" + firstMAC + "\"}\n        addresses: [127.9.0.21/24]\n" +
			"        routes: [{network: 0.0.0.0/0, gateway: 127.9.0.1}, {network: 127.40.0.0/16, gateway: 127.8.0.1}]\n" +
			"      - interface: bond0\n        mtu: 9000\n        addresses: [127.9.1.21/24]\n" +
			"        bond: {mode: balance-xor, miimon: 100, deviceSelectors: [" + selectors + "]}\n" +
			"        vlans: [{vlanId: 30, mtu: 1500, addresses: [127.9.2.21/24], routes: [{network: 127.30.0.0/16, gateway: 127.9.2.1, metric: 7}]}]\n"
	}
	selector := func(mac string) string { return "{permanentAddr: \"" + mac + "\"}" }
	first := "ens18 " + firstMAC + " 1500 127.9.0.21/24"

	for name, test := range map[string]struct {
		selectors     string
		links, routes []string
		warning       string
	}{
		"a bond of two cards": {
			selectors: selector(secondMAC) + ", " + selector("02:00:00:00:00:03"),
			links: []string{
				first, "ens19 " + secondMAC + " 9000 bond0", "ens20 " + secondMAC + " 9000 bond0",
				"bond0 " + secondMAC + " 9000 balance-xor 127.9.1.21/24", "bond0.30 " + secondMAC + " 1500 30 127.9.2.21/24",
			},
			routes:  []string{"invalid Prefix ens18 1024", "127.30.0.0/16 bond0.30 7"},
			warning: "127.40.0.0/16 over ens18: the gateway 127.8.0.1 is unreachable",
		},
		"a bond with a card that does not exist": {
			selectors: selector(secondMAC) + ", " + selector("02:00:00:00:00:09"),
			links: []string{
				first, "ens19 " + secondMAC + " 9000 bond0", "ens20 02:00:00:00:00:03 1500",
				"bond0 " + secondMAC + " 9000 balance-xor 127.9.1.21/24", "bond0.30 " + secondMAC + " 1500 30 127.9.2.21/24",
			},
			routes: []string{"invalid Prefix ens18 1024", "127.30.0.0/16 bond0.30 7"},
		},
		"a bond of no card": {
			selectors: selector("02:00:00:00:00:09"),
			links:     []string{first, "ens19 " + secondMAC + " 1500", "ens20 02:00:00:00:00:03 1500"},
			routes:    []string{"invalid Prefix ens18 1024"},
			warning:   "no matching network device for defined bond selectors of bond0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			m := network.Machine{
				Platform: "nocloud", CloudInit: nocloud,
				NICs: []datacentre.NIC{
					{Name: "net0", MAC: firstMAC, Bridge: "vmbr0"},
					{Name: "net1", MAC: secondMAC, Bridge: "vmbr1"},
					{Name: "net2", MAC: "02:00:00:00:00:03", Bridge: "vmbr1"},
				},
				Lease: func(string, string) (datacentre.Lease, bool) { return datacentre.Lease{}, false },
			}

			cfg, err := configloader.NewFromBytes([]byte(legacy(bond(test.selectors))))
			require.NoError(t, err)

			plan := m.Plan(cfg)
			assert.Contains(t, strings.Join(plan.Warnings, "\n"), test.warning)

			links, routes := reported(plan.Resources("node-1", nil))
			assert.Equal(t, test.links, links)
			assert.Equal(t, test.routes, routes)
		})
	}
}

// reported returns what the resources say of links and routes.
func reported(list []resource.Resource) (links, routes []string) {
	names, addresses := map[uint32]string{}, map[string]string{}

	for _, r := range list {
		switch r := r.(type) {
		case *resources.LinkStatus:
			names[r.TypedSpec().Index] = r.Metadata().ID()
		case *resources.AddressStatus:
			addresses[r.TypedSpec().LinkName] += " " + r.TypedSpec().Address.String()
		case *resources.RouteStatus:
			spec := r.TypedSpec()
			routes = append(routes, fmt.Sprint(spec.Destination, " ", spec.OutLinkName, " ", spec.Priority))
		}
	}

	for _, r := range list {
		link, ok := r.(*resources.LinkStatus)
		if !ok {
			continue
		}

		spec := link.TypedSpec()
		text := fmt.Sprint(link.Metadata().ID(), " ", net.HardwareAddr(spec.HardwareAddr), " ", spec.MTU)

		switch {
		case spec.SlaveKind != "":
			text += " " + names[spec.MasterIndex]
		case spec.Kind == resources.LinkKindBond:
			text += " " + spec.BondMaster.Mode.String()
		case spec.Kind == resources.LinkKindVLAN:
			text += fmt.Sprint(" ", spec.VLAN.VID)
		}

		links = append(links, text+addresses[link.Metadata().ID()])
	}

	return links, routes
}
