package spec

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/talos"
)

// planAPIEndpoints sets the URLs of the clusters' Kubernetes APIs. The clusters are in the order of the configuration.
func (p *planner) planAPIEndpoints(plan *Plan) {
	owners := map[string]string{}

	for i := range plan.Clusters {
		c, at := &plan.Clusters[i], fmt.Sprintf("clusters[%d].endpoint", i)

		host, port := c.apiAddress().String(), talos.APIPort
		if configured := p.config.Clusters[i].Endpoint; configured != nil {
			if !p.checkAPIEndpoint(at, *configured, *c, plan.Machines) {
				continue
			}

			host, port = configured.Host, configured.Port
		} else if !c.apiAddress().IsValid() {
			continue
		}

		c.Endpoint = "https://" + net.JoinHostPort(host, strconv.Itoa(port))

		switch other, taken := owners[c.Endpoint]; {
		case !taken:
			owners[c.Endpoint] = c.Name
		case p.config.Clusters[i].Endpoint != nil:
			p.problems.Add(at, nil, "is the endpoint of cluster %s already; choose another host or port", other)
		}
	}
}

// EndpointAddress returns the host and the port of the endpoint.
func (c Cluster) EndpointAddress() (host, port string) {
	host, port, _ = net.SplitHostPort(strings.TrimPrefix(c.Endpoint, "https://"))

	return host, port
}

// apiAddress returns the VIP, otherwise the address of the first control plane; invalid if it is unusable.
func (c Cluster) apiAddress() netip.Addr {
	if !c.VIP.IsValid() && len(c.ControlPlanes) > 0 {
		return c.ControlPlanes[0].Address.Addr()
	}

	return c.VIP
}

// ServesAPI reports whether an address is the VIP or that of a control plane, whose API servers have one port.
func (c Cluster) ServesAPI(address netip.Addr) bool {
	isNode := func(n Node) bool { return n.Address.Addr() == address || n.AddressIPv6.Addr() == address }

	return address == c.VIP || slices.ContainsFunc(c.ControlPlanes, isNode)
}

// checkAPIEndpoint checks a configured endpoint, and returns whether it is usable. A load balancer may have the address
// of a plain machine, or share it with a gateway, a Proxmox host or another cluster; otherwise it has one of its own.
func (p *planner) checkAPIEndpoint(path string, e EndpointConfig, c Cluster, machines []Machine) bool {
	at := path + ".host"

	if _, err := netip.ParseAddr(e.Host); err != nil {
		if e.Host == "localhost" || strings.HasSuffix(e.Host, ".localhost") {
			p.problems.Add(at, e.Host, "is each machine itself; write a name that all machines and users resolve, such as "+
				"k8s.example.org")

			return false
		}

		return p.checkFormat(at, e.Host, endpointFormat)
	}

	address, ok := p.parseServer(at, e.Host, c.Network)

	switch {
	case !ok:
		return false
	case slices.ContainsFunc(machines, func(m Machine) bool {
		return m.Address.Addr() == address || m.AddressIPv6.Addr() == address
	}):
	case !c.ServesAPI(address):
		p.addresses.take(address, claim{
			owner: "the endpoint of " + c.Name, group: path, path: at, count: 1, net: c.Network, shared: true,
		})
	case e.Port != talos.APIPort:
		p.problems.Add(path+".port", e.Port, "is not the port of the Kubernetes API on control planes; set %d, or the host of a "+
			"load balancer", talos.APIPort)
	}

	return true
}

// planCertSANs checks the additional names and addresses in certificates.
func (p *planner) planCertSANs(path string, texts []string) []string {
	var names []string

	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.checkNotEmpty(at, text, "write it as k8s.example.org")

		if address, err := netip.ParseAddr(text); err == nil {
			text = address.String()
		} else if !p.checkFormat(at, text, certificateNameFormat) {
			continue
		}

		if slices.Contains(names, text) {
			p.problems.Add(at, text, "is listed twice; remove one of the two")
		}

		names = append(names, text)
	}

	return names
}
