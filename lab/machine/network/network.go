// Package network plans a machine's network as Talos does: from its cards, what its platform says, its configuration
// and DHCP.
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

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/configuration"
)

// Machine is what the network is planned for.
type Machine struct {
	// Platform is Talos' name of it: "nocloud" reads CloudInit, any other META, which is the value of META key 10.
	Platform  string
	CloudInit *datacentre.CloudInit
	META      string
	NICs      []datacentre.NIC
	// Lease is the answer of the DHCP server behind a bridge.
	Lease func(bridge, mac string) (datacentre.Lease, bool)
}

// Plan is a machine's network. It does not change once it is made.
type Plan struct {
	Links []*Link
	// Addresses are those of all links, in order; the virtual ones are not among them.
	Addresses []netip.Prefix
	// Node is the address the machine is known by in its cluster.
	Node             netip.Addr
	DNS              []netip.Addr
	PlatformHostname string
	Warnings         []string

	search []string
	ntp    []string
}

// Link is a network interface: physical, or a VLAN on one.
type Link struct {
	Name      string
	alias     string
	index     int
	mac       string
	bridge    string
	driver    string
	mtu       int
	parent    string // of a VLAN
	vlan      int
	addresses []netip.Prefix
	gateways  []netip.Addr
	// configured says that the platform or the configuration mentions the link, which ends default DHCP.
	configured, ignored, dhcp bool
}

// physicalLinks names the cards as the kernel does on Proxmox' virtual hardware: net0 is in slot 18.
func (m Machine) physicalLinks() []*Link {
	links := make([]*Link, 0, len(m.NICs))

	for i, nic := range m.NICs {
		mtu := nic.MTU
		if mtu <= 1 { // 1 stands for the bridge's
			mtu = 1500
		}

		driver := "virtio_net"
		if nic.Model != "" && nic.Model != "virtio" {
			driver = nic.Model
		}

		slot, _ := strconv.Atoi(strings.TrimPrefix(nic.Name, "net"))

		links = append(links, &Link{
			Name: "ens" + strconv.Itoa(18+slot), index: i + 2, mac: strings.ToLower(nic.MAC),
			bridge: nic.Bridge, driver: driver, mtu: mtu,
		})
	}

	return links
}

// Plan computes the machine's network; without a configuration, that of maintenance mode. The layers add up as in
// Talos: an address that the platform gives and the configuration repeats is one, two different ones are both there.
func (m Machine) Plan(cfg config.Config) Plan {
	n := Plan{Links: m.physicalLinks()}
	useDefaultDHCP := cfg == nil || cfg.RunDefaultDHCPOperators()

	m.platformNetwork(&n)

	if cfg != nil {
		n.configure(cfg)
	}

	for _, l := range n.Links {
		if l.ignored || l.mac == "" {
			continue
		}

		if l.dhcp || useDefaultDHCP && !l.configured {
			m.requestLease(&n, l)
		}
	}

	n.finish(cfg)

	return n
}

func (m Machine) requestLease(n *Plan, l *Link) {
	lease, ok := m.Lease(l.bridge, l.mac)
	if !ok {
		n.Warnings = append(n.Warnings, "no DHCP server answers "+l.Name+" ("+l.mac+") on "+l.bridge)

		return
	}

	l.dhcp = true
	l.addAddress(lease.Address)

	if lease.Gateway.IsValid() {
		l.gateways = append(l.gateways, lease.Gateway)
	}

	if len(n.DNS) == 0 {
		n.DNS = lease.DNS
	}
}

// platformNetwork applies nocloud data on the nocloud platform, and META key 10 on metal.
func (m Machine) platformNetwork(n *Plan) {
	if m.Platform != "nocloud" {
		if m.META != "" {
			n.applyMETA(m.META)
		}

		return
	}

	ci := m.CloudInit
	if ci == nil {
		return
	}

	n.PlatformHostname, n.DNS, n.search = ci.Hostname, ci.DNS, ci.Search

	for _, iface := range ci.Interfaces {
		l := n.find(func(l *Link) bool { return l.mac == strings.ToLower(iface.MAC) })
		if l == nil || !iface.DHCP && !iface.Address.IsValid() {
			continue
		}

		l.configured, l.dhcp = true, iface.DHCP

		if iface.Address.IsValid() {
			l.addAddress(iface.Address)
		}

		if iface.Gateway.IsValid() {
			l.gateways = append(l.gateways, iface.Gateway)
		}
	}
}

func (n *Plan) find(match func(*Link) bool) *Link {
	if i := slices.IndexFunc(n.Links, match); i >= 0 {
		return n.Links[i]
	}

	return nil
}

// byName finds a link by its kernel name, alias, or alternative name.
func (n *Plan) byName(name string) *Link {
	return n.find(func(l *Link) bool { return l.Name == name || l.alias != "" && l.alias == name || name == l.altName() })
}

func (l *Link) altName() string {
	if l.parent != "" {
		return ""
	}

	return "enx" + strings.ReplaceAll(l.mac, ":", "")
}

func (l *Link) addAddress(p netip.Prefix) {
	if !slices.Contains(l.addresses, p) {
		l.addresses = append(l.addresses, p)
	}
}

// finish collects the addresses and chooses the node address: the first that kubelet.nodeIP allows and that is none of
// Kubernetes' own networks.
func (n *Plan) finish(cfg config.Config) {
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

	own := OutsideKubernetes(n.Addresses, cfg)
	for _, p := range own {
		if InSubnets(p.Addr(), subnets) {
			n.Node = p.Addr()

			return
		}
	}

	switch {
	case len(own) < len(n.Addresses):
		n.Warnings = append(n.Warnings, "no address is outside cluster.network.podSubnets and serviceSubnets")
	case len(n.Addresses) > 0:
		n.Warnings = append(n.Warnings, "no address is in machine.kubelet.nodeIP.validSubnets "+strings.Join(subnets, ", "))
	}
}

// OutsideKubernetes leaves out the addresses of pods and services, which Talos never takes for a node's own: neither
// its kubelet nor its etcd use one.
func OutsideKubernetes(addresses []netip.Prefix, cfg config.Config) []netip.Prefix {
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

// VirtualIPs are the layer-2 virtual addresses of a configuration.
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

		for _, v := range d.Vlans() {
			if v.VIPConfig() != nil {
				add(v.VIPConfig().IP())
			}
		}
	}

	for _, v := range cfg.NetworkVirtualIPConfigs() {
		add(v.VIP().String())
	}

	return vips
}

// Hostname is the configuration's name, else the platform's, else Talos' stable one, which is made of the machine's
// identity.
func (n *Plan) Hostname(cfg config.Config, identity func() string) string {
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

	sum := sha256.Sum256([]byte(identity()))
	text := "0000000" + new(big.Int).SetBytes(sum[:8]).Text(36)
	text = text[len(text)-7:]

	return "talos-" + text[1:4] + "-" + text[4:]
}
