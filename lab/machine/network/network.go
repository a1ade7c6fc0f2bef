// Package network plans a machine's network as Talos does: from its cards, its platform, its configuration and DHCP.
package network

import (
	"cmp"
	"crypto/sha256"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/configuration"
)

// Machine is the machine to plan for.
type Machine struct {
	// Platform is the name of Talos' platform; "nocloud" reads CloudInit.
	Platform  string
	CloudInit *datacentre.CloudInit
	NICs      []datacentre.NIC
	// Lease returns the lease of the DHCP server behind a bridge.
	Lease func(bridge, mac string) (datacentre.Lease, bool)
}

// Plan is a machine's network. It is immutable.
type Plan struct {
	Links  []*Link
	Routes []Route
	// Addresses are the sorted addresses of all links without virtual IPs.
	Addresses []netip.Prefix
	// Node is the machine's address in its cluster, NodeIPv6 its second one.
	Node, NodeIPv6   netip.Addr
	PlatformHostname string
	Warnings         []string
}

// Link is a network interface: physical, a bond, or a VLAN on one of these.
type Link struct {
	Name string
	// mac changes in a bond, permanent does not; only cards have one.
	mac, permanent string
	bridge         string
	kind           string // as Linux names it; empty = physical
	mtu            uint32
	bond           network.BondMasterSpec
	vlan           network.VLANSpec
	master, parent *Link // of a card in a bond, of a VLAN
	addresses      []netip.Prefix
	// configured is set if the platform or the configuration mentions the link, which disables default DHCP.
	configured, ignored, dhcp bool
	metric                    uint32 // of the routes that DHCP brings
}

// physicalLinks names the cards like the kernel on Proxmox' virtual hardware: net0 is in slot 18.
func (m Machine) physicalLinks() []*Link {
	links := make([]*Link, 0, len(m.NICs))

	for _, nic := range m.NICs {
		slot, _ := strconv.Atoi(strings.TrimPrefix(nic.Name, "net"))

		mac := strings.ToLower(nic.MAC)
		links = append(links, &Link{
			Name: "ens" + strconv.Itoa(18+slot), mac: mac, permanent: mac, bridge: nic.Bridge, mtu: mtuOf(nic.MTU),
		})
	}

	return links
}

// Plan computes the machine's network; without a configuration, that of maintenance mode. As in Talos, addresses of the
// platform and of the configuration add up, without duplicates.
func (m Machine) Plan(cfg config.Config) Plan {
	n := Plan{Links: m.physicalLinks()}
	useDefaultDHCP := cfg == nil || cfg.RunDefaultDHCPOperators()

	m.platformNetwork(&n)

	if cfg != nil {
		n.configure(cfg)
	}

	for _, l := range n.Links {
		if !l.ignored && (l.dhcp || useDefaultDHCP && !l.configured) {
			m.requestLease(&n, l)
		}
	}

	n.dropUnreachable()
	n.chooseNodeAddress(cfg)

	return n
}

func (m Machine) requestLease(n *Plan, l *Link) {
	if lease, ok := m.Lease(l.bridge, l.mac); ok {
		l.addAddress(lease.Address)

		if lease.Gateway.IsValid() {
			n.addRoute(Route{defaultRoute, lease.Gateway, l, cmp.Or(l.metric, network.DefaultRouteMetric)})
		}
	} else {
		n.Warnings = append(n.Warnings, "no DHCP server answers "+l.Name+" ("+l.mac+") on "+l.bridge)
	}
}

// platformNetwork applies nocloud data on the nocloud platform.
func (m Machine) platformNetwork(n *Plan) {
	ci := m.CloudInit
	if m.Platform != "nocloud" || ci == nil {
		return
	}

	n.PlatformHostname = ci.Hostname

	for _, iface := range ci.Interfaces {
		for _, l := range n.Links {
			if l.mac != strings.ToLower(iface.MAC) || !iface.DHCP && !iface.Address.IsValid() {
				continue
			}

			l.configured, l.dhcp = true, iface.DHCP

			for _, address := range []netip.Prefix{iface.Address, iface.AddressIPv6} {
				if address.IsValid() {
					l.addAddress(address)
				}
			}

			if iface.Address.IsValid() && iface.Gateway.IsValid() {
				n.addRoute(Route{defaultRoute, iface.Gateway, l, network.DefaultRouteMetric})
			}
		}
	}
}

func (l *Link) addAddress(p netip.Prefix) {
	if !slices.Contains(l.addresses, p) {
		l.addresses = append(l.addresses, p)
	}
}

// chooseNodeAddress collects the addresses, and chooses the node addresses: the first of each family that
// kubelet.nodeIP allows outside Kubernetes' networks. IPv4 sorts before IPv6.
func (n *Plan) chooseNodeAddress(cfg config.Config) {
	for _, l := range n.Links {
		n.Addresses = append(n.Addresses, l.addresses...)
	}

	slices.SortFunc(n.Addresses, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})

	n.Addresses = slices.Compact(n.Addresses)

	var subnets []string
	if cfg != nil && cfg.Machine() != nil {
		subnets = cfg.K8sNodeConfig().NodeIP().ValidSubnets()
	}

	own := ExcludeClusterNetworks(n.Addresses, cfg)
	for _, p := range own {
		if !InSubnets(p.Addr(), subnets) {
			continue
		}

		if !n.Node.IsValid() {
			n.Node = p.Addr()
		} else if p.Addr().Is6() && n.Node.Is4() {
			n.NodeIPv6 = p.Addr()

			break
		}
	}

	if n.Node.IsValid() {
		return
	}

	switch {
	case len(own) < len(n.Addresses):
		n.Warnings = append(n.Warnings, "no address is outside cluster.network.podSubnets and serviceSubnets")
	case len(n.Addresses) > 0:
		n.Warnings = append(n.Warnings, "no address is in machine.kubelet.nodeIP.validSubnets "+strings.Join(subnets, ", "))
	}
}

// ExcludeClusterNetworks removes the addresses of pods and services, which Talos uses neither for the kubelet nor for
// etcd.
func ExcludeClusterNetworks(addresses []netip.Prefix, cfg config.Config) []netip.Prefix {
	if cfg == nil || cfg.Cluster() == nil {
		return addresses
	}

	k8s := configuration.Network(cfg)
	networks := slices.Concat(k8s.PodCIDRs(), k8s.ServiceCIDRs())

	return slices.DeleteFunc(slices.Clone(addresses), func(p netip.Prefix) bool {
		return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(p.Addr()) })
	})
}

// InSubnets applies Talos' subnet filters: "!" excludes, an empty list allows everything.
func InSubnets(a netip.Addr, subnets []string) bool {
	if len(subnets) == 0 {
		return true
	}

	allowed := false

	for _, s := range subnets {
		excluded := strings.HasPrefix(s, "!")

		p, err := netip.ParsePrefix(strings.TrimPrefix(s, "!"))
		if err != nil || !p.Contains(a) {
			continue
		}

		if excluded {
			return false
		}

		allowed = true
	}

	return allowed
}

// VirtualIPs returns the layer-2 virtual IPs of a configuration.
func VirtualIPs(cfg config.Config) []netip.Addr {
	var vips []netip.Addr

	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(vips, a) {
			vips = append(vips, a)
		}
	}

	for _, d := range cfg.Machine().Network().Devices() {
		if d.VIPConfig() != nil {
			add(d.VIPConfig().IP())
		}
	}

	return vips
}

// Hostname returns the host name of the configuration, else the platform's, else Talos' stable one, derived from the
// node id.
func (n *Plan) Hostname(cfg config.Config, nodeID func() string) string {
	platform, _, _ := strings.Cut(n.PlatformHostname, ".")

	if cfg != nil {
		if h := cfg.NetworkHostnameConfig(); h != nil {
			if name, _, _ := strings.Cut(h.Hostname(), "."); name != "" {
				return name
			}

			if h.AutoHostname() == nethelpers.AutoHostnameKindOff && n.PlatformHostname == "" {
				return ""
			}
		}
	}

	if platform != "" {
		return platform
	}

	sum := sha256.Sum256([]byte(nodeID()))
	text := "0000000" + new(big.Int).SetBytes(sum[:8]).Text(36)
	text = text[len(text)-7:]

	return "talos-" + text[1:4] + "-" + text[4:]
}
