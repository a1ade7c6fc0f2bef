package spec

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/internal/cilium"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// Defaults that are outside of every stack, beside those of Talos.
const (
	defaultControl      = "https://controlplane.tailscale.com"
	defaultGatewayAPI   = "https://raw.githubusercontent.com"
	signatureAuthority  = "https://tuf-repo-cdn.sigstore.dev"
	proxmoxRepositories = "http://download.proxmox.com"
)

// CheckDiscovery reports what cannot be the discovery service of a cluster, below a path.
func CheckDiscovery(path, text string, found *problem.List) {
	service, err := url.Parse(text)
	if text == "" || text == talos.NoDiscovery {
		return
	}

	if err != nil || service.Scheme != "https" || service.Host == "" || strings.Trim(service.Path, "/") != "" {
		found.Add(path, text, "is not the address of a discovery service; write it as https://discovery.example.org/, "+
			"or none")
	}
}

// planDiscovery plans how the machines of a cluster find each other.
func (p *planner) planDiscovery(path string, c ClusterConfig) string {
	at := path + ".discovery"
	CheckDiscovery(at, c.Discovery, p.problems)

	if c.Discovery == talos.NoDiscovery && c.ControlPlane.Count > 1 && c.Network.VIP == "" && c.Endpoint == nil {
		p.warn("%s: without it, all machines use the API of the first control plane, and lose it with that machine; "+
			"set %s.network.vip or %[2]s.endpoint", at, path)
	}

	return c.Discovery
}

// egress are the names and networks that the stack reaches.
type egress struct {
	p        *planner
	domains  []string
	networks []netip.Prefix
}

// planEgress checks that nothing in the stack file, and no default, is outside of what the stack reaches. The clusters
// are in the order of the configuration.
func (p *planner) planEgress(plan *Plan) []string {
	if len(p.config.Egress) == 0 {
		return nil
	}

	e := egress{p: p}

	for i, text := range p.config.Egress {
		e.admit(fmt.Sprintf("egress[%d]", i), text)
	}

	for _, h := range plan.Hosts {
		e.networks = append(e.networks, netip.PrefixFrom(h.Address, h.Address.BitLen()))
	}

	for _, g := range p.pools {
		e.networks = append(e.networks, g.network.CIDR)
		if g.network.IPv6 != nil {
			e.networks = append(e.networks, g.network.IPv6.CIDR)
		}
	}

	e.checkHosts()
	e.checkTemplates()

	for i, c := range p.config.Clusters {
		path := fmt.Sprintf("clusters[%d]", i)
		e.checkNetwork(path+".network", c.Network)
		e.checkServices(path, c)
		e.checkPlatform(path, c, plan.Clusters[i])
		e.checkRegistries(path+".registries", cmp.Or(c.Registries, &Registries{}), e.registries(c))
	}

	for i, m := range p.config.Machines {
		e.contactAll(fmt.Sprintf("machines[%d].network.dns", i), m.Network.DNS, "a name server")
	}

	if s3 := p.config.Backup.S3; s3 != nil {
		e.contact("backup.s3.endpoint", s3.Endpoint, "", "set a server of your own")
	}

	// The rest of the URL is a secret.
	if webhook, err := url.Parse(p.config.Notifications.Webhook); err == nil && webhook.Host != "" {
		e.contact(webhookPath, webhook.Scheme+"://"+webhook.Host, "", "set a receiver of your own")
	}

	return p.config.Egress
}

// admit adds a domain, a network or an address.
func (e *egress) admit(path, text string) {
	prefix, err := netip.ParsePrefix(text)
	if address, noAddress := netip.ParseAddr(text); noAddress == nil {
		prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
	}

	switch {
	case err != nil:
		e.p.checkNotEmpty(path, text, "write it as example.internal")

		if e.p.checkFormat(path, text, domainFormat) {
			e.domains = append(e.domains, strings.ToLower(text))
		}
	case prefix != prefix.Masked():
		e.p.problems.Add(path, text, "is an address inside a network; write the network as %s", prefix.Masked())
	default:
		e.networks = append(e.networks, prefix)
	}
}

// hostOf returns the name or the address of a URL, or of a host with or without a port; empty = a file.
func hostOf(text string) string {
	if scheme, _, found := strings.Cut(text, "://"); found {
		if address, err := url.Parse(text); err == nil && scheme != "file" {
			return strings.ToLower(address.Hostname())
		}

		return ""
	}

	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}

	return strings.ToLower(text)
}

// reaches reports whether the stack reaches a host.
func (e *egress) reaches(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return slices.ContainsFunc(e.networks, func(n netip.Prefix) bool { return n.Contains(address) })
	}

	return host == "" || slices.ContainsFunc(e.domains, func(domain string) bool {
		return host == domain || strings.HasSuffix(host, "."+domain)
	})
}

// contact checks the address at a path, or its default if it is not set.
func (e *egress) contact(path, text, byDefault, remedy string) {
	address := hostOf(cmp.Or(text, byDefault))

	switch {
	case e.reaches(address) || e.p.problems.Has(path) || e.p.isUndecrypted(path):
	case text == "":
		e.p.problems.Add(path, nil, "is missing, and its default, %s, is not in egress; %s", address, remedy)
	default:
		e.p.problems.Add(path, text, "is not in egress, so it is not reached; %s", remedy)
	}
}

// read checks where a file is read from: a URL, or a path, which is on this computer.
func (e *egress) read(path, text, byDefault string) {
	if text == "" || strings.Contains(text, "://") {
		e.contact(path, text, byDefault, "set where a copy is, or a path")
	}
}

// contactAll checks a list of addresses that has no default.
func (e *egress) contactAll(path string, texts []string, what string) {
	for i, text := range texts {
		e.contact(fmt.Sprintf("%s[%d]", path, i), text, "", "set "+what+" that is, or add it there")
	}
}

// contactFirst checks a list of addresses whose default is outside of every stack.
func (e *egress) contactFirst(path string, texts []string, byDefault, what string) {
	if len(texts) == 0 {
		e.contact(path, "", byDefault, "set "+what+" of your own")
	}

	e.contactAll(path, texts, what)
}

func (e *egress) checkHosts() {
	for i, h := range e.p.config.Hosts {
		if h.Prep != nil && h.Prep.Repositories != "keep" && !e.reaches(hostOf(proxmoxRepositories)) {
			e.p.problems.Add(fmt.Sprintf("hosts[%d].prep.repositories", i), h.Prep.Repositories,
				"is at proxmox.com, which is not in egress; set keep, and a mirror of your own on the host")
		}
	}
}

// checkTemplates checks where images come from.
func (e *egress) checkTemplates() {
	if len(e.p.config.Clusters) > 0 && e.p.options.FactoryURL != Blinded {
		e.contact("talos:imageFactoryUrl", e.p.options.FactoryURL, talos.DefaultFactoryURL,
			"set an Image Factory of your own")
	}

	for _, key := range slices.Sorted(maps.Keys(e.p.config.Templates)) {
		c, system := e.p.config.Templates[key], e.p.classes[key].System
		if system == nil {
			continue
		}

		path := joinPath("templates", key)
		e.contact(path+".url", c.URL, system.URL, "set where the image is, and let it have mirrors of your own for packages")
		e.contact(path+".windows.cloudbaseUrl", c.Windows.CloudbaseURL, "", "set where its installer is")
	}
}

// checkNetwork checks the servers of names and time of a cluster. With DHCP, name servers come with the address.
func (e *egress) checkNetwork(path string, c NetworkConfig) {
	if c.Addressing == "dhcp" {
		e.contactAll(path+".dns", c.DNS, "a name server")
	} else {
		e.contactFirst(path+".dns", c.DNS, constants.DefaultPrimaryResolver, "a name server")
	}

	e.contactFirst(path+".ntp", c.NTP, constants.DefaultNTPServer, "a time server")
}

// checkServices checks what else machines contact.
func (e *egress) checkServices(path string, c ClusterConfig) {
	for _, g := range e.p.pools {
		if g.Network != nil && strings.HasPrefix(g.path, path+".") {
			e.contactAll(g.path+".network.dns", g.Network.DNS, "a name server")
		}
	}

	if c.Discovery != talos.NoDiscovery {
		e.contact(path+".discovery", c.Discovery, constants.DefaultDiscoveryServiceEndpoint, "set none, or a discovery service of your own")
	}

	e.contactAll(path+".logDestinations", c.LogDestinations, "a server")

	if c.Tailscale != nil {
		e.contact(path+".tailscale.loginServer", c.Tailscale.LoginServer, defaultControl, "set a control server of your own")
	}

	if c.APIServer != nil && c.APIServer.OIDC != nil {
		e.contact(path+".apiServer.oidc.issuer", c.APIServer.OIDC.Issuer, "", "set an issuer that is, or add it there")
	}
}

// checkPlatform checks where charts and the tree of Flux are.
func (e *egress) checkPlatform(path string, c ClusterConfig, planned Cluster) {
	if planned.CNI != nil {
		e.read(path+".cni.chart", c.CNI.Chart, cilium.Address(planned.CNI.Version))
	}

	if c.CNI.GatewayAPI {
		e.read(path+".cni.gatewayApiSource", c.CNI.GatewayAPISource, defaultGatewayAPI)
	}

	if g := c.GitOps; g != nil {
		e.contact(path+".gitops.url", g.URL, "", "set a server of your own")
		e.read(path+".gitops.operator.chart", g.Operator.Chart, "")

		if g.Verify != nil && g.Verify.Issuer != "" && !e.reaches(hostOf(signatureAuthority)) {
			e.p.addMissing(path+".gitops.verify.keys", "is missing, and keyless signatures are verified with %s, which is "+
				"not in egress; set keys, and remove issuer and subject", hostOf(signatureAuthority))
		}
	}
}

// registries returns the registries of the images that the program has machines pull, with what they are for.
func (e *egress) registries(c ClusterConfig) map[string]string {
	list := map[string]string{"ghcr.io": "the kubelet", "registry.k8s.io": "etcd and Kubernetes"}

	if c.CNI.Kind == "cilium" {
		list["quay.io"] = "Cilium"
	}

	if c.GitOps != nil {
		list["ghcr.io"] += " and Flux"
	}

	hasMachines := func(w GPUWorkersConfig) bool { return w.Count > 0 }
	if (c.ControlPlane.GPU != "" || slices.ContainsFunc(c.GPUWorkers, hasMachines)) && !c.GPUOperator {
		list["nvcr.io"] = "NVIDIA's device plugin"
	}

	return list
}

// checkRegistries checks that the images of registries come from mirrors that are reached, and from nowhere else.
func (e *egress) checkRegistries(path string, r *Registries, needed map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		_, own := r.Mirrors[name]
		if _, all := r.Mirrors["*"]; !own && !all && !e.reaches(name) {
			e.p.addMissing(joinPath(path+".mirrors", name), "is missing, and %s is not in egress; set mirrors for the images "+
				"of %s, with skipFallback: true", name, needed[name])
		}
	}

	for _, name := range slices.Sorted(maps.Keys(r.Mirrors)) {
		mirror, at := r.Mirrors[name], joinPath(path+".mirrors", name)
		e.contactAll(at+".endpoints", mirror.Endpoints, "a mirror")

		if !mirror.SkipFallback && (name == "*" || !e.reaches(hostOf(name))) {
			e.p.problems.Add(at+".skipFallback", false, "lets machines pull from the registry itself, which is not in egress, "+
				"where the mirrors lack an image; set it to true")
		}

		if name == "*" {
			e.warnOfInstallers(path+".mirrors", r)
		}
	}
}

// warnOfInstallers warns that the mirrors of all registries are also those of the Image Factory, whose installers they
// may lack.
func (e *egress) warnOfInstallers(path string, r *Registries) {
	text := cmp.Or(e.p.options.FactoryURL, talos.DefaultFactoryURL)

	factory, err := url.Parse(text)
	if err != nil || text == Blinded {
		return
	}

	if _, own := r.Mirrors[factory.Host]; !own {
		e.p.warn(`%s["*"]: machines ask these mirrors for Talos' installers as well; unless they have them, set %s to %s`,
			path, joinPath(path, factory.Host), text)
	}
}
