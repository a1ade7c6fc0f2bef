package vmdiff

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// How long a Kubernetes API is unavailable, as docs/dev/performance.md measured it.
const (
	// awayForRestart is that of a control plane that restarts or is upgraded.
	awayForRestart = "about 40 s"
	// awayForMove is that of an API whose virtual IP another control plane takes over.
	awayForMove = "about 2 s"
	// awayForUpgrade is that of an API whose server is replaced by one of another version.
	awayForUpgrade = "about 5 s"
)

// aboutAPI begins lines about a cluster's API.
const aboutAPI = "the API of cluster "

// IsAboutAPI reports whether a line is about the availability of a cluster's API: one of [Describe] or [Check].
func IsAboutAPI(line string) bool {
	return strings.HasPrefix(line, aboutAPI) || strings.Contains(line, " has one control plane: its API ")
}

// API is what determines for how long the Kubernetes API of a cluster is unavailable while control planes restart.
type API struct {
	ControlPlanes int // planned
	// VIP is the virtual IP; invalid = none, or unknown.
	VIP netip.Addr
	// Endpoint is the URL of the API; empty = it and VIP are unknown.
	Endpoint string
	// Only is the control plane that alone answers at the endpoint; empty = there are others, or a load balancer.
	Only string
}

// APIs returns what determines the availability of the plan's Kubernetes APIs, by cluster.
func APIs(plan *spec.Plan) map[string]API {
	apis := map[string]API{}

	for _, cluster := range plan.Clusters {
		api := API{ControlPlanes: len(cluster.ControlPlanes), VIP: cluster.VIP, Endpoint: cluster.Endpoint}

		host := cluster.Endpoint
		if u, err := url.Parse(cluster.Endpoint); err == nil {
			host = u.Hostname()
		}

		for _, n := range cluster.ControlPlanes {
			if host == n.Address.Addr().String() || host == n.AddressIPv6.Addr().String() {
				api.Only = n.Name
			}
		}

		apis[cluster.Name] = api
	}

	return apis
}

// Outage describes for how long a cluster's API is unavailable while control planes of it restart, which they do one at
// a time; empty = it is unknown, or it stays available.
func (a API) Outage(cluster string, restarting []string) string {
	switch names := JoinNames(restarting); {
	case a.ControlPlanes == 0 || len(restarting) == 0:
		return ""
	case a.ControlPlanes == 1:
		return fmt.Sprintf("cluster %s has one control plane: its API is unavailable while %s restarts, for %s", cluster, names,
			awayForRestart)
	case a.VIP.IsValid():
		return fmt.Sprintf("%s%s is unavailable: for %s when the control plane that has the virtual IP %s restarts (%s do, one at a time)",
			aboutAPI, cluster, awayForMove, a.VIP, names)
	case a.Only != "" && slices.Contains(restarting, a.Only):
		return fmt.Sprintf("%s%s is unavailable: for %s while %s restarts, which alone has its endpoint %s", aboutAPI, cluster,
			awayForRestart, a.Only, a.Endpoint)
	case a.Only != "" || a.Endpoint == "":
		return ""
	default:
		return fmt.Sprintf("%s%s stays available: if a load balancer at %s sends no request to a control plane that restarts (%s do, one "+
			"at a time)", aboutAPI, cluster, a.Endpoint, names)
	}
}

// movedVIPs describes what clients of a virtual IP notice that changes.
func (j *checker) movedVIPs(last map[string]string) (lines []string) {
	for _, cluster := range j.plan.Clusters {
		first, _, _ := strings.Cut(last[AddressesOf(cluster.Name)], " ")
		was, err := netip.ParseAddr(first)

		stays := strings.Contains(" "+addressesWithoutCards(cluster)+" ", " "+first+" ")
		if err != nil || !cluster.VIP.IsValid() || stays || !j.runs(cluster) {
			continue
		}

		lines = append(lines, fmt.Sprintf("%s%s moves: from the virtual IP %s to %s (%s.network.vip). Control planes get their new "+
			"configuration one after the other: the new address answers after the first of them, the former one until the last",
			aboutAPI, cluster.Name, was, cluster.VIP, clusterPath(cluster)))
	}

	return lines
}
