package report

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

type cluster struct {
	Name, Endpoint, Talos, Kubernetes, VIP, CIDR string
	// Colour is the number of its colour on the page, which has colours for six.
	Colour int
	// Fixes is the first end of life, with the version; a dash if unknown.
	Fixes                  string
	ControlPlanes, Workers int
	HasCNI                 bool // the program installs one
	// Settings are those of its API servers, of access to machines, logs and registries; empty = Talos' own.
	Settings string
}

// API describes the endpoint of the cluster's API.
func (c cluster) API() string {
	switch {
	case c.VIP == "":
		return c.Endpoint
	case !strings.HasPrefix(c.Endpoint, "https://"+c.VIP+":"):
		return c.Endpoint + ", and the virtual IP " + c.VIP
	}

	return "virtual IP " + c.VIP + ", on one control plane at a time"
}

func newCluster(c spec.Cluster) cluster {
	result := cluster{
		Name:          c.Name,
		Endpoint:      c.Endpoint,
		Talos:         c.TalosVersion,
		Kubernetes:    c.KubernetesVersion,
		Fixes:         "–",
		CIDR:          strings.Join(networksOf(c), ", "),
		ControlPlanes: len(c.ControlPlanes), Workers: len(c.Workers), HasCNI: c.CNI != nil,
	}
	result.Settings = strings.Join(settingsOf(c), ", ")

	ends := talos.EndsOfLife(c.TalosVersion, c.KubernetesVersion)
	slices.SortStableFunc(ends, func(a, b talos.EndOfLife) int { return strings.Compare(a.Day, b.Day) })

	if len(ends) > 0 {
		result.Fixes = ends[0].Day + " (" + ends[0].Of + ")"
	}

	if c.VIP.IsValid() {
		result.VIP = c.VIP.String()
	}

	return result
}

// settingsOf describes who logs in, what is recorded, what pods may do, who reaches machines, where logs go and images
// come from, and which pools grow.
func settingsOf(c spec.Cluster) (list []string) {
	if c.Security != "" {
		text := c.Security
		if without := c.Unhardened(); len(without) > 0 {
			text += " (without " + strings.Join(without, ", ") + ")"
		}

		list = append(list, text)
	}

	if a := c.APIServer; a != nil {
		if a.OIDC != nil {
			list = append(list, "users of "+a.OIDC.Issuer+" log in")
		}

		if a.AuditPolicy != nil {
			list = append(list, "audit policy")
		}

		if a.PodSecurity != nil {
			list = append(list, "Pod Security "+a.PodSecurity.Enforce)
		}
	}

	if c.Firewall != nil {
		firewalls := "Talos' firewall"
		if c.Firewall.Proxmox != nil {
			firewalls += " and Proxmox'"
		}

		list = append(list, firewalls)
	}

	if c.Tailscale != nil {
		list = append(list, "machines join a tailnet")
	}

	switch c.Discovery {
	case "":
	case talos.NoDiscovery:
		list = append(list, "no discovery service")
	default:
		list = append(list, "discovery service "+c.Discovery)
	}

	if len(c.LogDestinations) > 0 {
		list = append(list, "logs go to "+strings.Join(c.LogDestinations, " and "))
	}

	if c.Maintenance != nil {
		for _, w := range c.Maintenance.Windows {
			list = append(list, "a maintenance window "+w.String())
		}
	}

	if c.Registries != nil && len(c.Registries.Mirrors) > 0 {
		list = append(list, "mirrors of "+strings.Join(slices.Sorted(maps.Keys(c.Registries.Mirrors)), " and "))
	}

	for _, pool := range c.Autoscaled {
		list = append(list, fmt.Sprintf("an autoscaler adds up to %d machines to %s", pool.Max, pool.Name))
	}

	return list
}

// networksOf returns the networks of a cluster's machines, without duplicates.
func networksOf(c spec.Cluster) (list []string) {
	for _, n := range c.Nodes() {
		network := c.NetworkOf(n)
		networks := []netip.Prefix{network.CIDR}

		if network.IPv6 != nil {
			networks = append(networks, network.IPv6.CIDR)
		}

		for _, cidr := range networks {
			if !slices.Contains(list, cidr.String()) {
				list = append(list, cidr.String())
			}
		}
	}

	return list
}
