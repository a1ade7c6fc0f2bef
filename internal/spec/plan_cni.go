package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/cilium"
)

// CNI is the CNI of a cluster: Cilium, as the Helm release cilium in kube-system. A HelmRelease of Flux with that name
// takes it over; then the program no longer changes it.
type CNI struct { // digests in states contain the names of its fields
	// The version of the chart. Default: the newest one that supports the Kubernetes version.
	Version string `pulumi:"version,optional"`
	// Where the chart's archive is: oci://…, https://….tgz, file:///….tgz, or a path. Default: where Cilium publishes it.
	Chart string `pulumi:"chart,optional"`
	// The SHA-256 of the archive, as sha256:…; for a chart in a registry, that of its manifest works as well. Default:
	// that of Cilium's archive, if it is known.
	Digest string `pulumi:"digest,optional"`
	// Values of the chart, in addition to those that Talos needs, as YAML text. Default: none.
	Values string `pulumi:"values,optional"`
	// Addresses for Services of type LoadBalancer, which the nodes announce. Default: none.
	LoadBalancer []AddressRange `pulumi:"loadBalancer,optional"`
	// Regular expressions for the names of the network interfaces that announce them. Default: all.
	Interfaces []string `pulumi:"interfaces,optional"`
	// Announce them to routers by BGP. Default: in the nodes' own network, by ARP.
	BGP *cilium.BGP `json:",omitempty" pulumi:"bgp,optional"`
	// Enable the Gateway API, and install its CRDs. Default: false.
	GatewayAPI bool `pulumi:"gatewayApi,optional"`
	// The directory of the Gateway API's CRDs, as an https:// address or a path. Default: its repository.
	GatewayAPISource string `pulumi:"gatewayApiSource,optional"`
	// Run Hubble, its relay and its user interface. Default: false.
	Hubble bool `pulumi:"hubble,optional"`
	// Store the values, and what is computed from them, as secrets in state and previews. Default: false.
	Secret bool `pulumi:"secret,optional"`
}

// AddressRange is a range of addresses for Services.
type AddressRange = cilium.AddressRange

// serviceRange is such a range with its claim.
type serviceRange struct {
	first netip.Addr
	claim claim
}

// kindNone is the kind of clusters whose CNI the program does not install.
const kindNone = "none"

// planCNI plans the CNI; nil = the program installs none.
func (p *planner) planCNI(path string, c CNIConfig, cluster Cluster) *CNI {
	if c.Kind == kindNone || c.Kind == "" {
		p.rejectKeys(path, keysWithValues(c, "kind"), "is set although no CNI is installed; set kind: cilium, or remove it")

		return nil
	}

	values, _ := json.Marshal(c.Values) // decoded from JSON before
	cni := &CNI{
		Version: strings.TrimPrefix(c.Version, "v"), Chart: c.Chart, Digest: c.Digest, Values: string(values),
		GatewayAPI: c.GatewayAPI, GatewayAPISource: c.GatewayAPISource, Hubble: c.Hubble,
		Secret: len(c.Values) > 0 && p.secrets.overlaps(path+".values"),
	}

	p.checkFormat(path+".digest", c.Digest, digestFormat)
	p.checkLocation(path+".chart", c.Chart, "oci", "https", "http", "file")
	p.checkLocation(path+".gatewayApiSource", c.GatewayAPISource, "https", "http", "file")
	p.planCNIVersion(path, cni, cluster)

	if c.GatewayAPISource != "" && !c.GatewayAPI {
		p.problems.Add(path+".gatewayApiSource", c.GatewayAPISource, "is used only for the Gateway API; set gatewayApi: true, "+
			"or remove it")
	}

	invalid := cilium.CheckValues(c.Values)
	for _, at := range slices.Sorted(maps.Keys(invalid)) {
		p.problems.Add(path+".values."+at, nil, "%s", invalid[at])
	}

	if c.LoadBalancer != nil {
		p.planLoadBalancer(path+".loadBalancer", *c.LoadBalancer, cni, cluster)
	}

	return cni
}

// planCNIVersion sets the chart's version, and checks it against the cluster's Kubernetes.
func (p *planner) planCNIVersion(path string, cni *CNI, cluster Cluster) {
	at := path + ".version"
	if cni.Version != "" && !p.checkFormat(at, "v"+cni.Version, versionFormat) || cluster.KubernetesVersion == "" {
		return
	}

	cni.Version = cmp.Or(cni.Version, cilium.DefaultVersion(cluster.KubernetesVersion))

	switch _, known := cilium.Find(cni.Version); {
	case cni.Version == "":
		p.addMissing(at, "is missing, and no version is known to support Kubernetes %s; set it, with its digest",
			cluster.KubernetesVersion)
	case cni.Digest == "" && !known:
		p.addMissing(path+".digest", "is missing, and this program does not know that of version %s; set it, as "+
			"`sha256sum` prints it for the archive", cni.Version)
	default:
		if err := cilium.Check(cni.Version, cluster.KubernetesVersion); err != nil {
			p.problems.Add(at, cni.Version, "%s", err)
		} else if untested := cilium.Untested(cni.Version, cluster.KubernetesVersion); untested != "" {
			p.warn("%s: %s", at, untested)
		}
	}
}

// checkLocation reports a location that is neither a URL with one of the schemes nor a path.
func (p *planner) checkLocation(path, text string, schemes ...string) {
	scheme, rest, has := strings.Cut(text, "://")
	if text == "" || p.isUndecrypted(path) || !has {
		return
	}

	if _, err := url.Parse(text); err != nil || rest == "" || !slices.Contains(schemes, scheme) {
		p.problems.Add(path, text, "is not a URL to read from; use %s://…, or a path", strings.Join(schemes, "://…, "))
	}
}

// maxServiceAddresses limits the size of a range.
const maxServiceAddresses = 1 << 16

// planLoadBalancer parses the addresses for Services of type LoadBalancer. [planner.claimServices] claims them once all
// other addresses are claimed.
func (p *planner) planLoadBalancer(path string, c LoadBalancerConfig, cni *CNI, cluster Cluster) {
	for i, text := range c.Interfaces {
		if _, err := regexp.Compile(text); err != nil || text == "" {
			p.problems.Add(fmt.Sprintf("%s.interfaces[%d]", path, i), text,
				"is not a regular expression for names of network cards; write it as ^ens18$")
		}
	}

	cni.Interfaces = c.Interfaces
	p.planBGP(path, c, cni, cluster)

	for i, text := range c.Addresses {
		p.planServiceRange(fmt.Sprintf("%s.addresses[%d]", path, i), text, cni, cluster)
	}

	if cni.BGP == nil && slices.ContainsFunc(cni.LoadBalancer, func(r AddressRange) bool { return r.First.Is6() }) {
		p.warn("%s.addresses: clients find IPv6 addresses of Services only if the bridges of the Proxmox hosts do not snoop "+
			"multicast, because Cilium does not join the groups of these addresses (cilium#46274); add `bridge-mcsnoop no` to them "+
			"(docs/networking.md#dual-stack)", path)
	}
}

// planServiceRange adds a range of addresses, of either family: of the cluster's network, or with BGP outside of it.
func (p *planner) planServiceRange(at, text string, cni *CNI, cluster Cluster) {
	first, last, ok := p.addressRange(at, text)
	network := cluster.Network

	switch {
	case !ok:
		return
	case first.Is6() && network.IPv6 == nil:
		p.problems.Add(at, text, "is IPv6, and the machines have IPv4 only; set network.ipv6, or use IPv4 addresses")

		return
	case first.Is6() && cni.BGP == nil && !cilium.AnnouncesIPv6(cni.Version):
		p.problems.Add(at, text, "is IPv6, which Cilium announces from 1.19 on, and not %s; choose a newer version, or use "+
			"IPv4 addresses", cni.Version)

		return
	case first.Is6():
		network.CIDR = network.IPv6.CIDR
	}

	switch {
	case !network.CIDR.IsValid():
	case AddressOffset(first, last) >= maxServiceAddresses:
		p.problems.Add(at, text, "has more than %d addresses; use fewer", maxServiceAddresses)
	case cni.BGP != nil && (network.CIDR.Contains(first) || network.CIDR.Contains(last)):
		p.problems.Add(at, text, "is in the nodes' network %s, in which nobody answers for addresses that are announced by BGP; "+
			"use addresses outside of it", network.CIDR)
	case cni.BGP != nil || p.checkInside(at, first, network.CIDR) && p.checkInside(at, last, network.CIDR):
		cni.LoadBalancer = append(cni.LoadBalancer, AddressRange{First: first, Last: last})
		p.services = append(p.services, serviceRange{first, claim{
			owner: "the load balancer of " + cluster.Name, group: at, path: at,
			count: AddressOffset(first, last) + 1, net: network,
		}})
	}
}

// planBGP plans how the addresses are announced to routers.
func (p *planner) planBGP(path string, c LoadBalancerConfig, cni *CNI, cluster Cluster) {
	if c.BGP == nil {
		return
	}

	bgp := &cilium.BGP{
		LocalASN: c.BGP.LocalASN, Multihop: c.BGP.Multihop, HoldTimeSeconds: c.BGP.HoldTimeSeconds, Password: c.BGP.Password,
	}
	cni.BGP = bgp

	if len(c.Interfaces) > 0 {
		p.problems.Add(path+".interfaces", nil, "is for announcements by ARP, which bgp replaces; remove one of the two")
	}

	for i, peer := range c.BGP.Peers {
		at := fmt.Sprintf("%s.bgp.peers[%d]", path, i)

		address, ok := p.parseAddress(at+".address", peer.Address)
		if !ok {
			continue
		}

		if slices.ContainsFunc(bgp.Peers, func(other cilium.BGPPeer) bool { return other.Address == address }) {
			p.problems.Add(at+".address", peer.Address, "is listed already; remove one of the two")
		}

		if network := cluster.Network.CIDR; network.IsValid() && !network.Contains(address) && peer.ASN != bgp.LocalASN &&
			bgp.Multihop == 0 {
			p.problems.Add(at+".address", peer.Address, "is outside the nodes' network %s, and an external peer is expected to be "+
				"directly connected; set %s to the number of hops, such as 2", network, path+".bgp.multihop")
		}

		bgp.Peers = append(bgp.Peers, cilium.BGPPeer{Address: address, ASN: peer.ASN})
	}
}

// addressRange parses addresses: a range, a network or a single address.
func (p *planner) addressRange(path, text string) (first, last netip.Addr, ok bool) {
	from, to, isRange := strings.Cut(text, "-")

	switch prefix, err := netip.ParsePrefix(text); {
	case err == nil && prefix == prefix.Masked():
		return prefix.Addr(), lastAddress(prefix), true
	case err == nil:
		p.problems.Add(path, text, "is an address inside a network; write the network as %s", prefix.Masked())

		return first, last, false
	case !isRange:
		to = from
	}

	first, err := netip.ParseAddr(strings.TrimSpace(from))
	last, lastErr := netip.ParseAddr(strings.TrimSpace(to))

	if cmp.Or(err, lastErr) != nil || first.Is4() != last.Is4() || last.Less(first) {
		p.problems.Add(path, text, "is not a range of addresses; write it as 10.0.0.200-10.0.0.220 or 10.0.0.240/28")

		return first, last, false
	}

	return first, last, true
}

// claimServices claims the addresses for Services, in the order of the configuration.
func (p *planner) claimServices() {
	for _, r := range p.services {
		last := r.first
		for n := range r.claim.count {
			last = AddOffset(r.first, n)
			p.addresses.take(last, r.claim)
		}

		dns := r.claim.net.DNS
		if k := slices.IndexFunc(dns, func(server netip.Addr) bool {
			return !server.Less(r.first) && !last.Less(server)
		}); k >= 0 {
			p.problems.Add(r.claim.path, dns[k].String(), "is a name server of the cluster already; choose others")
		}
	}
}
