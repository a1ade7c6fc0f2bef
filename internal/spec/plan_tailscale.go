package spec

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// Tailscale joins the nodes of a cluster to a tailnet, under their own names.
type Tailscale struct {
	// The key that nodes register with, reusable because each of them does: of Tailscale (`tskey-auth-…`) or of your own
	// control server; must be stored encrypted.
	AuthKey string `json:"authKey" jsonschema:"required" pulumi:"authKey" provider:"secret"`
	// The control server. Default: Tailscale's.
	LoginServer string `json:"loginServer,omitempty" jsonschema:"example=https://headscale.example.org" pulumi:"loginServer,optional"`
	// The tags that nodes request, which the key must allow. Default: those of the key.
	Tags []string `json:"tags,omitempty" jsonschema:"example=tag:talos" pulumi:"tags,optional"`
	// The networks that control planes offer to reach through them, such as the VIP as `10.0.0.5/32`; the control server
	// must approve them. Default: none.
	Routes []string `json:"routes,omitempty" jsonschema:"example=10.0.0.5/32" pulumi:"routes,optional"`
}

// ForTalos returns the tailnet of a machine configuration; nil = none.
func (t *Tailscale) ForTalos() *talos.Tailscale {
	if t == nil {
		return nil
	}

	own := talos.Tailscale(*t)

	return &own
}

// tailnets are the networks of addresses in tailnets (tailscale.com/docs: CGNAT, and its own part of fc00::/7).
var tailnets = []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fd7a:115c:a1e0::/48")}

var tailnetTagFormat = format{
	regexp.MustCompile(`^tag:[a-zA-Z][a-zA-Z0-9-]*$`), "is not a tag of a tailnet; write it as tag:talos",
}

// Check reports problems of the settings, below a path.
func (t *Tailscale) Check(at string, found *problem.List) {
	p := &planner{problems: found}
	p.checkTailscale(at, t)
}

func (p *planner) checkTailscale(at string, t *Tailscale) {
	isBlank := func(r rune) bool { return r <= ' ' || r > '~' }

	if t.AuthKey == "" {
		p.addMissing(at+".authKey", "is missing; set the key that the control server created")
	} else if !p.isUndecrypted(at+".authKey") && strings.ContainsFunc(t.AuthKey, isBlank) {
		p.problems.Add(at+".authKey", nil, "is not a key to register with; set the one that the control server created, as it "+
			"showed it")
	}

	server, err := url.Parse(t.LoginServer)
	if t.LoginServer != "" && (err != nil || server.Scheme != "https" || server.Host == "" || server.User != nil) {
		p.problems.Add(at+".loginServer", t.LoginServer, "is not the address of a control server; write it as "+
			"https://headscale.example.org")
	}

	for i, tag := range t.Tags {
		path := fmt.Sprintf("%s.tags[%d]", at, i)
		p.checkNotEmpty(path, tag, "write it as tag:talos")
		p.checkFormat(path, tag, tailnetTagFormat)
	}

	for i, text := range t.Routes {
		route, err := netip.ParsePrefix(text)

		switch path := fmt.Sprintf("%s.routes[%d]", at, i); {
		case err != nil || route != route.Masked():
			p.problems.Add(path, text, "is not a network; write it as 10.0.0.0/24, or one address as 10.0.0.5/32")
		case overlapsTailnet(route):
			p.problems.Add(path, text, "is in the tailnet's own network; remove it")
		}
	}
}

func overlapsTailnet(network netip.Prefix) bool {
	return network.IsValid() && slices.ContainsFunc(tailnets, network.Overlaps)
}

// planTailscale checks the tailnet of a cluster's nodes, which their templates need the extension for.
func (p *planner) planTailscale(path string, t *Tailscale, cluster Cluster, pools []*pool) *Tailscale {
	if t == nil {
		return nil
	}

	at := path + ".tailscale"
	p.checkEncrypted(at+".authKey", t.AuthKey)
	p.checkTailscale(at, t)

	for key, network := range map[string]netip.Prefix{
		".network.cidr": cluster.Network.CIDR, ".podCidr": cluster.PodCIDR, ".serviceCidr": cluster.ServiceCIDR,
	} {
		if overlapsTailnet(network) {
			p.problems.Add(path+key, network.String(), "overlaps the network of tailnets (%s); choose another", tailnets[0])
		}
	}

	checked := map[string]bool{}

	for _, g := range pools {
		class, known := p.classes[g.Template]
		if !known || checked[class.path] {
			continue
		}

		checked[class.path] = true
		if !slices.Contains(class.Extensions, talos.TailscaleExtension) {
			p.problems.Add(class.path+".extensions", nil, "lacks tailscale, which %s needs; add it", at)
		}
	}

	return t
}
