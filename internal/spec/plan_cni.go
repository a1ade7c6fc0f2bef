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
type CNI struct { // the names of its fields are those of the digests that stacks have
	// The version of the chart. Default: the newest one that supports the Kubernetes version.
	Version string `pulumi:"version,optional"`
	// Where the chart's archive is: oci://…, https://….tgz, file:///….tgz, or a path. Default: where Cilium publishes it.
	Chart string `pulumi:"chart,optional"`
	// The SHA-256 of the archive, as sha256:…; for a chart in a registry, that of its manifest works as well. Default:
	// that of Cilium's archive, if it is known.
	Digest string `pulumi:"digest,optional"`
	// Values of the chart, in addition to those that Talos needs, as YAML text. Default: none.
	Values string `pulumi:"values,optional"`
	// Addresses for Services of type LoadBalancer, which the nodes announce in their own network. Default: none.
	LoadBalancer []AddressRange `pulumi:"loadBalancer,optional"`
	// Regular expressions for the names of the network interfaces that announce them. Default: all.
	Interfaces []string `pulumi:"interfaces,optional"`
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

// serviceRange is such a range, with what takes it.
type serviceRange struct {
	first netip.Addr
	by    claim
}

// kindNone is the CNI of clusters that get none from the program.
const kindNone = "none"

// planCNI judges what brings the network of pods; nil = nobody does.
func (p *planner) planCNI(path string, c CNIConfig, cluster Cluster) *CNI {
	if c.Kind == kindNone || c.Kind == "" {
		p.refuseKeys(path, statedKeys(c, "kind"), "is set although no CNI is installed; set kind: cilium, or remove it")

		return nil
	}

	values, _ := json.Marshal(c.Values) // they were read from JSON
	cni := &CNI{
		Version: strings.TrimPrefix(c.Version, "v"), Chart: c.Chart, Digest: c.Digest, Values: string(values),
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
		p.planLoadBalancer(path+".loadBalancer", *c.LoadBalancer, cni, cluster)
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
func (p *planner) planLoadBalancer(path string, c LoadBalancerConfig, cni *CNI, cluster Cluster) {
	for i, text := range c.Interfaces {
		if _, err := regexp.Compile(text); err != nil || text == "" {
			p.problems.Add(fmt.Sprintf("%s.interfaces[%d]", path, i), text,
				"is not a regular expression for names of network cards; write it as ^ens18$")
		}
	}

	cni.Interfaces = c.Interfaces

	for i, text := range c.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", path, i)
		first, last, ok := p.addressRange(at, text)
		network := cluster.Network

		switch {
		case !ok:
		case toNumber(last)-toNumber(first) >= mostAddresses:
			p.problems.Add(at, text, "has more than %d addresses; use fewer", mostAddresses)
		case network.CIDR.IsValid() && p.inside(at, first, network.CIDR) && p.inside(at, last, network.CIDR):
			cni.LoadBalancer = append(cni.LoadBalancer, AddressRange{First: first.String(), Last: last.String()})
			p.services = append(p.services, serviceRange{first, claim{
				owner: "the load balancer of " + cluster.Name, group: at, path: at,
				count: int(toNumber(last)-toNumber(first)) + 1, net: network,
			}})
		}
	}
}

// addressRange reads addresses that are stated as a range, as a network or alone.
func (p *planner) addressRange(path, text string) (first, last netip.Addr, ok bool) {
	from, to, isRange := strings.Cut(text, "-")

	switch prefix, err := netip.ParsePrefix(text); {
	case err == nil && prefix.Addr().Is4() && prefix == prefix.Masked():
		return prefix.Addr(), lastAddress(prefix), true
	case err == nil && prefix.Addr().Is4():
		p.problems.Add(path, text, "is an address inside a network; write the network as %s", prefix.Masked())

		return first, last, false
	case err == nil:
		p.problems.Add(path, text, noIPv6+"network")

		return first, last, false
	case !isRange:
		to = from
	}

	first, err := netip.ParseAddr(strings.TrimSpace(from))
	last, lastErr := netip.ParseAddr(strings.TrimSpace(to))

	if cmp.Or(err, lastErr) != nil || !first.Is4() || !last.Is4() || last.Less(first) {
		p.problems.Add(path, text, "is not a range of IPv4 addresses; write it as 10.0.0.200-10.0.0.220 or 10.0.0.240/28")

		return first, last, false
	}

	return first, last, true
}

// claimServices takes the addresses for Services, so that nothing else has them, in the order of the configuration.
func (p *planner) claimServices() {
	for _, r := range p.services {
		last := r.first
		for n := range r.by.count {
			last = offset(r.first, n)
			p.addresses.take(last, r.by)
		}

		dns := r.by.net.DNS
		if k := slices.IndexFunc(dns, func(server netip.Addr) bool {
			return !server.Less(r.first) && !last.Less(server)
		}); k >= 0 {
			p.problems.Add(r.by.path, dns[k].String(), "is a name server of the cluster already; choose others")
		}
	}
}
