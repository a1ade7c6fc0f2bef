package spec

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/cilium"
)

// CNI is what brings a cluster's pods their network: Cilium, as a Helm release.
type CNI struct {
	Version string // of the chart
	Chart   string // where its archive is; empty = where Cilium publishes it
	Digest  string // sha256:…; empty = the known one
	Values  map[string]any
	// LoadBalancer are the addresses for Services of type LoadBalancer; none = there are none.
	LoadBalancer []AddressRange
	// Interfaces are regular expressions for the network cards that answer for them; none = all.
	Interfaces       []string
	GatewayAPI       bool
	GatewayAPISource string // a folder; empty = the repository's own
	Hubble           bool
	// Secret says that values are stored encrypted.
	Secret bool `json:",omitempty"`
}

// AddressRange are addresses, both ends included.
type AddressRange struct {
	First, Last netip.Addr

	path string
}

// kindNone is the CNI of clusters that get none from the program.
const kindNone = "none"

// planCNI judges what brings the network of pods; nil = nobody does.
func (p *planner) planCNI(path string, c CNIConfig, cluster Cluster) *CNI {
	if c.Kind == kindNone || c.Kind == "" {
		for key, set := range map[string]bool{
			"version": c.Version != "", "chart": c.Chart != "", "digest": c.Digest != "", "values": len(c.Values) > 0,
			"loadBalancer": c.LoadBalancer != nil, "gatewayApi": c.GatewayAPI, "hubble": c.Hubble,
			"gatewayApiSource": c.GatewayAPISource != "",
		} {
			if set {
				p.problems.Add(path+"."+key, nil, "is set although no CNI is installed; set kind: cilium, or remove it")
			}
		}

		return nil
	}

	cni := &CNI{
		Version: strings.TrimPrefix(c.Version, "v"), Chart: c.Chart, Digest: c.Digest, Values: c.Values,
		GatewayAPI: c.GatewayAPI, GatewayAPISource: c.GatewayAPISource, Hubble: c.Hubble,
		Secret: len(c.Values) > 0 && p.secrets.touch(path+".values"),
	}

	p.check(path+".digest", c.Digest, digestForm)
	p.checkPlace(path+".chart", c.Chart, "oci", "https", "http", "file")
	p.checkPlace(path+".gatewayApiSource", c.GatewayAPISource, "https", "http", "file")
	p.planCNIVersion(path, cni, cluster)

	if c.GatewayAPISource != "" && !c.GatewayAPI {
		p.problems.Add(path+".gatewayApiSource", c.GatewayAPISource, "is read for the Gateway API alone; set gatewayApi: true, "+
			"or remove it")
	}

	wrong := cilium.CheckValues(c.Values)
	for _, at := range slices.Sorted(maps.Keys(wrong)) {
		p.problems.Add(path+".values."+at, nil, "%s", wrong[at])
	}

	if c.LoadBalancer != nil {
		p.planLoadBalancer(path+".loadBalancer", *c.LoadBalancer, cni, cluster.Network)
	}

	return cni
}

// planCNIVersion decides the chart's version, and judges it against the cluster's Kubernetes.
func (p *planner) planCNIVersion(path string, cni *CNI, cluster Cluster) {
	at := path + ".version"
	if cni.Version != "" && !p.check(at, "v"+cni.Version, versionForm) || cluster.KubernetesVersion == "" {
		return
	}

	cni.Version = cmp.Or(cni.Version, cilium.DefaultVersion(cluster.KubernetesVersion))

	switch _, known := cilium.Find(cni.Version); {
	case cni.Version == "":
		p.problems.Add(at, nil, "is missing, and no version is known that runs on Kubernetes %s; set it, with its digest",
			cluster.KubernetesVersion)
	case cni.Digest == "" && !known:
		p.problems.Add(path+".digest", nil, "is missing, and this program does not know that of version %s; set it, as "+
			"`sha256sum` prints it of the archive", cni.Version)
	default:
		if err := cilium.Check(cni.Version, cluster.KubernetesVersion); err != nil {
			p.problems.Add(at, cni.Version, "%s", err)
		} else if untested := cilium.Untested(cni.Version, cluster.KubernetesVersion); untested != "" {
			p.warn("%s: %s", at, untested)
		}
	}
}

// checkPlace reports a place that is neither an address of a known scheme nor a path.
func (p *planner) checkPlace(path, text string, schemes ...string) {
	scheme, rest, has := strings.Cut(text, "://")
	if text == "" || p.unknown(path) || !has {
		return
	}

	if _, err := url.Parse(text); err != nil || rest == "" || !slices.Contains(schemes, scheme) {
		p.problems.Add(path, text, "is no address to read from; use %s://…, or a path", strings.Join(schemes, "://…, "))
	}
}

// mostAddresses bounds a range: nobody has more Services.
const mostAddresses = 1 << 16

// planLoadBalancer reads the addresses for Services of type LoadBalancer. They are judged against those of others when
// all of these are known.
func (p *planner) planLoadBalancer(path string, c LoadBalancerConfig, cni *CNI, network Network) {
	for i, text := range c.Interfaces {
		if _, err := regexp.Compile(text); err != nil || text == "" {
			p.problems.Add(fmt.Sprintf("%s.interfaces[%d]", path, i), text,
				"is not a regular expression for names of network cards; write it as ^ens18$")
		}
	}

	cni.Interfaces = c.Interfaces

	for i, text := range c.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", path, i)
		found, ok := p.addressRange(at, text)

		switch {
		case !ok:
		case toNumber(found.Last)-toNumber(found.First) >= mostAddresses:
			p.problems.Add(at, text, "has more than %d addresses; use fewer", mostAddresses)
		case network.CIDR.IsValid() && p.inside(at, found.First, network.CIDR) && p.inside(at, found.Last, network.CIDR):
			found.path = at
			cni.LoadBalancer = append(cni.LoadBalancer, found)
		}
	}
}

// addressRange reads addresses that are stated as a range, as a network or alone.
func (p *planner) addressRange(path, text string) (AddressRange, bool) {
	from, to, isRange := strings.Cut(text, "-")

	switch prefix, err := netip.ParsePrefix(text); {
	case err == nil && prefix.Addr().Is4() && prefix == prefix.Masked():
		return AddressRange{First: prefix.Addr(), Last: lastAddress(prefix)}, true
	case err == nil && prefix.Addr().Is4():
		p.problems.Add(path, text, "is an address inside a network; write the network as %s", prefix.Masked())

		return AddressRange{}, false
	case err == nil:
		p.problems.Add(path, text, noIPv6+"network")

		return AddressRange{}, false
	case !isRange:
		to = from
	}

	first, err := netip.ParseAddr(strings.TrimSpace(from))
	last, lastErr := netip.ParseAddr(strings.TrimSpace(to))

	if cmp.Or(err, lastErr) != nil || !first.Is4() || !last.Is4() || last.Less(first) {
		p.problems.Add(path, text, "is not a range of IPv4 addresses; write it as 10.0.0.200-10.0.0.220 or 10.0.0.240/28")

		return AddressRange{}, false
	}

	return AddressRange{First: first, Last: last}, true
}

// claimLoadBalancers takes the addresses for Services, so that nothing else has them. The clusters are in the order of
// the configuration.
func (p *planner) claimLoadBalancers(clusters []Cluster) {
	for _, c := range clusters {
		if c.CNI == nil {
			continue
		}

		for _, r := range c.CNI.LoadBalancer {
			count := int(toNumber(r.Last)-toNumber(r.First)) + 1
			by := claim{owner: "the load balancer of " + c.Name, group: r.path, path: r.path, count: count, net: c.Network}

			for n := range count {
				p.addresses.take(offset(r.First, n), by)
			}

			if k := slices.IndexFunc(c.Network.DNS, func(server netip.Addr) bool {
				return !server.Less(r.First) && !r.Last.Less(server)
			}); k >= 0 {
				p.problems.Add(r.path, c.Network.DNS[k].String(), "is a name server of the cluster already; choose others")
			}
		}
	}
}
