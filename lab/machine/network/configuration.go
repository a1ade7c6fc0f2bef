package network

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/network"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	networkres "github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.yaml.in/yaml/v4"
)

// METAKey is the META key of the metal platform's network configuration.
const METAKey = 10

// applyMETA reads the network configuration of META key 10.
func (n *Plan) applyMETA(value string) {
	var platform networkres.PlatformConfigSpec

	if err := yaml.Unmarshal([]byte(value), &platform); err != nil {
		n.Warnings = append(n.Warnings, "the network configuration in META key 10 is invalid: "+err.Error())

		return
	}

	for _, spec := range platform.Links {
		if spec.Logical && spec.ParentName != "" {
			n.addVLAN(n.byName(spec.ParentName), spec.Name, int(spec.VLAN.VID))
		}

		if l := n.byName(spec.Name); l != nil {
			l.configured = true
		}
	}

	for _, a := range platform.Addresses {
		if l := n.byName(a.LinkName); l != nil {
			l.configured = true
			l.addAddress(a.Address)
		} else {
			n.Warnings = append(
				n.Warnings, "META key 10 gives "+a.Address.String()+" to the link "+a.LinkName+", which this machine does not have",
			)
		}
	}

	for _, r := range platform.Routes {
		if l := n.byName(r.OutLinkName); l != nil && r.Gateway.IsValid() {
			l.gateways = append(l.gateways, r.Gateway)
		}
	}

	for _, o := range platform.Operators {
		if l := n.byName(o.LinkName); l != nil {
			l.configured, l.dhcp = true, l.dhcp || o.Operator == networkres.OperatorDHCP4
		}
	}

	for _, r := range platform.Resolvers {
		n.DNS = append(n.DNS, r.DNSServers...)
	}

	for _, h := range platform.Hostnames {
		n.PlatformHostname = h.Hostname
	}
}

// resolve takes over the resolvers of a configuration.
func (n *Plan) resolve(r config.NetworkResolverConfig) {
	if r == nil || len(r.Resolvers()) == 0 {
		return
	}

	n.DNS, n.search = nil, r.SearchDomains().ValueOrZero()

	for _, one := range r.Resolvers() {
		n.DNS = append(n.DNS, one.Addr)
	}
}

// configure applies a machine configuration: machine.network.interfaces and the newer documents.
func (n *Plan) configure(cfg config.Config) {
	n.alias(cfg)

	for _, d := range cfg.Machine().Network().Devices() {
		links := n.selected(d)
		if len(links) == 0 {
			n.Warnings = append(n.Warnings, missingDevice(d))
		}

		for _, l := range links {
			n.configureDevice(l, d)
		}
	}

	for _, doc := range cfg.NetworkCommonLinkConfigs() {
		if v, ok := doc.(config.NetworkVLANConfig); ok {
			n.addVLAN(n.byName(v.ParentLink()), v.Name(), int(v.VLANID()))
		}

		n.configureLink(doc)
	}

	for _, doc := range cfg.NetworkDHCPv4Configs() {
		if l := n.byName(doc.Name()); l != nil {
			l.configured, l.dhcp = true, true
		}
	}

	n.resolve(cfg.NetworkResolverConfig())

	if t := cfg.NetworkTimeSyncConfig(); t != nil {
		n.ntp = t.Servers()
	}
}

// alias names links by LinkAliasConfig documents; the first selector that matches a link wins, and one that matches
// several links matches none.
func (n *Plan) alias(cfg config.Config) {
	for _, doc := range cfg.NetworkLinkAliasConfigs() {
		var matched []*Link

		expression := doc.LinkSelector()

		for _, l := range n.Links {
			spec := &network.LinkStatusSpec{}
			if err := proto.ResourceSpecToProto(l.status(), spec); err != nil {
				continue
			}

			if ok, err := expression.EvalBool(celenv.LinkLocator(), map[string]any{"link": spec}); err == nil && ok {
				matched = append(matched, l)
			}
		}

		switch {
		case len(matched) != 1:
			n.Warnings = append(
				n.Warnings, "the selector of LinkAliasConfig "+doc.Name()+" matches "+strconv.Itoa(len(matched))+" links",
			)
		case matched[0].alias == "":
			matched[0].alias = doc.Name()
		}
	}
}

// missingDevice says that the machine has no card for an interface of the configuration: Talos fails on a selector, and
// waits for a name.
func missingDevice(d config.Device) string {
	if s := d.Selector(); s != nil {
		return fmt.Sprintf(
			`controller failed {"component": "controller-runtime", "controller": "network.DeviceConfigController", `+
				`"error": "no matching network device for defined selector: {hardwareAddr: %s, bus: %s, driver: %s}"}`,
			s.HardwareAddress(), s.Bus(), s.KernelDriver(),
		)
	}

	return "no network device matches an interface of the configuration (" + d.Interface() + ")"
}

// selected are the links that an entry of machine.network.interfaces means.
func (n *Plan) selected(d config.Device) []*Link {
	selector := d.Selector()
	if selector == nil {
		if l := n.byName(d.Interface()); l != nil {
			return []*Link{l}
		}

		return nil
	}

	var links []*Link

	for _, l := range n.Links {
		if l.matches(selector) {
			links = append(links, l)
		}
	}

	return links
}

func (l *Link) matches(s config.NetworkDeviceSelector) bool {
	matched := false

	for _, pair := range [][2]string{
		{s.HardwareAddress(), l.mac},
		{s.PermanentAddress(), l.mac},
		{s.KernelDriver(), l.driver},
		{s.Bus(), l.busPath()},
		{s.PCIID(), virtioNetwork},
	} {
		if pair[0] == "" {
			continue
		}

		if ok, err := path.Match(strings.ToLower(pair[0]), pair[1]); err != nil || !ok {
			return false
		}

		matched = true
	}

	if s.Physical() != nil {
		return *s.Physical() == (l.parent == "")
	}

	return matched
}

func (n *Plan) configureDevice(l *Link, d config.Device) {
	l.configured, l.ignored = true, d.Ignore()
	if l.ignored {
		return
	}

	l.dhcp = l.dhcp || d.DHCP() && d.DHCPOptions().IPv4()

	if d.MTU() > 0 {
		l.mtu = d.MTU()
	}

	addAddresses(l, d.Addresses())
	addGateways(l, d.Routes())

	for _, v := range d.Vlans() {
		vlan := n.addVLAN(l, nethelpers.VLANLinkName(l.Name, v.ID()), int(v.ID()))
		vlan.configured, vlan.dhcp = true, v.DHCP() && v.DHCPOptions().IPv4()

		if v.MTU() > 0 {
			vlan.mtu = int(v.MTU())
		}

		addAddresses(vlan, v.Addresses())
		addGateways(vlan, v.Routes())
	}
}

func (n *Plan) configureLink(doc config.NetworkCommonLinkConfig) {
	l := n.byName(doc.Name())
	if l == nil {
		n.Warnings = append(n.Warnings, "no network device is named "+doc.Name()+" as the configuration says")

		return
	}

	l.configured = true

	for _, a := range doc.Addresses() {
		l.addAddress(a.Address())
	}

	for _, r := range doc.Routes() {
		if g, ok := r.Gateway().Get(); ok {
			l.gateways = append(l.gateways, g)
		}
	}

	if mtu, ok := doc.MTU().Get(); ok {
		l.mtu = int(mtu)
	}
}

// addVLAN adds a VLAN link on its parent, or returns the one that is there; a VLAN without a parent is not added.
func (n *Plan) addVLAN(parent *Link, name string, id int) *Link {
	if l := n.byName(name); l != nil {
		return l
	}

	l := &Link{Name: name, vlan: id, index: len(n.Links) + 2, driver: "802.1Q VLAN Support"}
	if parent == nil {
		n.Warnings = append(n.Warnings, "the VLAN "+name+" has no parent link")

		return l
	}

	l.parent, l.mac, l.bridge, l.mtu = parent.Name, parent.mac, parent.bridge, parent.mtu
	n.Links = append(n.Links, l)

	return l
}

func addAddresses(l *Link, addresses []string) {
	for _, text := range addresses {
		if p, err := netip.ParsePrefix(text); err == nil {
			l.addAddress(p)
		} else if a, err := netip.ParseAddr(text); err == nil {
			l.addAddress(netip.PrefixFrom(a, a.BitLen()))
		}
	}
}

func addGateways(l *Link, routes []config.Route) {
	for _, r := range routes {
		if a, err := netip.ParseAddr(r.Gateway()); err == nil {
			l.gateways = append(l.gateways, a)
		}
	}
}
