package machine

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
)

// netPlan is what a machine makes of its cards, its platform's data and its configuration.
type netPlan struct {
	links []*link
	// addresses are those of all links, in order; the virtual ones are not among them.
	addresses []netip.Prefix
	// node is the address the machine is known by in its cluster.
	node     netip.Addr
	dns      []netip.Addr
	search   []string
	ntp      []string
	hostname string // from the platform
	warnings []string
}

// link is a network interface: physical, or a VLAN on one.
type link struct {
	name      string
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
func (m *machine) physicalLinks() []*link {
	links := make([]*link, 0, len(m.hw.NICs))

	for i, nic := range m.hw.NICs {
		mtu := nic.MTU
		if mtu <= 1 { // 1 stands for the bridge's
			mtu = 1500
		}

		driver := "virtio_net"
		if nic.Model != "" && nic.Model != "virtio" {
			driver = nic.Model
		}

		links = append(links, &link{
			name: "ens" + itoa(18+deviceIndex(nic.Name)), index: i + 2, mac: strings.ToLower(nic.MAC), bridge: nic.Bridge, driver: driver, mtu: mtu,
		})
	}

	return links
}

// planNetwork computes the machine's network; the caller holds the lock. The layers add up as in Talos: an address that the platform gives and the
// configuration repeats is one, two different ones are both there.
func (m *machine) planNetwork(cfg config.Config) netPlan {
	n := netPlan{links: m.physicalLinks()}
	useDefaultDHCP := cfg == nil || cfg.RunDefaultDHCPOperators()

	m.platformNetwork(&n)

	if cfg != nil {
		n.configure(cfg)
	}

	for _, l := range n.links {
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

func (m *machine) requestLease(n *netPlan, l *link) {
	lease, ok := m.ms.world.Lease(l.bridge, l.mac)
	if !ok {
		n.warnings = append(n.warnings, "no DHCP server answers "+l.name+" ("+l.mac+") on "+l.bridge)

		return
	}

	l.dhcp = true
	l.addAddress(lease.Address)

	if lease.Gateway.IsValid() {
		l.gateways = append(l.gateways, lease.Gateway)
	}

	if len(n.dns) == 0 {
		n.dns = lease.DNS
	}
}

// platformNetwork applies nocloud data on the nocloud platform, and META key 10 on metal.
func (m *machine) platformNetwork(n *netPlan) {
	if m.system.Platform != "nocloud" {
		if value, ok := m.disk.META[metaNetwork]; ok {
			n.applyMETA(value)
		}

		return
	}

	ci := m.hw.CloudInit
	if ci == nil {
		return
	}

	n.hostname, n.dns, n.search = ci.Hostname, ci.DNS, ci.Search

	for _, iface := range ci.Interfaces {
		l := n.find(func(l *link) bool { return l.mac == strings.ToLower(iface.MAC) })
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

func (n *netPlan) find(match func(*link) bool) *link {
	if i := slices.IndexFunc(n.links, match); i >= 0 {
		return n.links[i]
	}

	return nil
}

// byName finds a link by its kernel name, alias, or alternative name.
func (n *netPlan) byName(name string) *link {
	return n.find(func(l *link) bool { return l.name == name || l.alias != "" && l.alias == name || name == l.altName() })
}

func (l *link) altName() string {
	if l.parent != "" {
		return ""
	}

	return "enx" + strings.ReplaceAll(l.mac, ":", "")
}

func (l *link) addAddress(p netip.Prefix) {
	if !slices.Contains(l.addresses, p) {
		l.addresses = append(l.addresses, p)
	}
}

// finish collects the addresses and chooses the node address: the first that kubelet.nodeIP allows and that is none of Kubernetes' own networks.
func (n *netPlan) finish(cfg config.Config) {
	for _, l := range n.links {
		n.addresses = append(n.addresses, l.addresses...)
	}

	slices.SortFunc(n.addresses, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})

	n.addresses = slices.Compact(n.addresses)

	var subnets []string
	if cfg != nil && cfg.Machine() != nil {
		subnets = cfg.Machine().Kubelet().NodeIP().ValidSubnets()
	}

	own := outsideKubernetes(n.addresses, cfg)
	for _, p := range own {
		if inSubnets(p.Addr(), subnets) {
			n.node = p.Addr()

			return
		}
	}

	switch {
	case len(own) < len(n.addresses):
		n.warnings = append(n.warnings, "no address is outside cluster.network.podSubnets and serviceSubnets")
	case len(n.addresses) > 0:
		n.warnings = append(n.warnings, "no address is in machine.kubelet.nodeIP.validSubnets "+strings.Join(subnets, ", "))
	}
}

// outsideKubernetes leaves out the addresses of pods and services, which Talos never takes for a node's own: neither its kubelet nor its etcd use one.
func outsideKubernetes(addresses []netip.Prefix, cfg config.Config) []netip.Prefix {
	if cfg == nil || cfg.Cluster() == nil {
		return addresses
	}

	networks := slices.Concat(cfg.Cluster().Network().PodCIDRs(), cfg.Cluster().Network().ServiceCIDRs())

	return slices.DeleteFunc(slices.Clone(addresses), func(p netip.Prefix) bool { return inAny(p.Addr(), networks) })
}

func inAny(a netip.Addr, networks []string) bool {
	return slices.ContainsFunc(networks, func(text string) bool {
		network, err := netip.ParsePrefix(text)

		return err == nil && network.Contains(a)
	})
}

// inSubnets applies Talos' subnet filters: "!" excludes, an empty list allows everything.
func inSubnets(a netip.Addr, subnets []string) bool {
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

// virtualIPs are the layer-2 virtual addresses of a configuration.
func virtualIPs(cfg config.Config) []netip.Addr {
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
