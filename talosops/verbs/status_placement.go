package verbs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
)

// checkPlacement adds where the machines are, and warns of hosts that are offline, with what is needed.
func (q *statusQuery) checkPlacement(s *request.ClusterStatus) {
	if s.Placement = q.req.Placement; s.Placement == nil {
		return
	}

	if s.Placement.NoQuorum {
		s.Care.Add("Proxmox", nil, "its cluster has no quorum: nothing can be created or changed, its high availability does nothing, "+
			"and hosts may only seem offline: pvecm status on a host shows who is missing")
	}

	byHost := map[string][]request.PlacedMachine{}

	for _, m := range s.Placement.Machines {
		for _, failure := range m.Replication {
			s.Care.Add(m.Node, nil, "replication of its disks %s: until it succeeds, a failover loses more than planned, or cannot start "+
				"the machine (docs/high-availability.md#replication)", failure)
		}

		switch {
		case m.Host == "":
			s.Care.Add(m.Node, nil, "Proxmox has no VM %d, or shows none to the stack's credentials: if it is gone, and its host is "+
				"not, pulumi up --refresh creates it again (docs/recovery.md)", m.VMID)
		case m.HostStatus == proxmoxapi.HostOffline:
			byHost[m.Host] = append(byHost[m.Host], m)
		}
	}

	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		s.Care.Add(host, nil, "%s", offlineHost(*s, host, byHost[host]))
	}
}

// offlineHost describes a host that is offline with machines of the cluster on it.
func offlineHost(s request.ClusterStatus, host string, machines []request.PlacedMachine) string {
	var all, bound, moving []string

	for _, m := range machines {
		all = append(all, m.Node)

		switch m.HA {
		case "":
			bound = append(bound, m.Node)
		case "error", "ignored", "stopped", "disabled":
			bound = append(bound, m.Node)
			moving = append(moving, fmt.Sprintf("%s stays there (%s)", m.Node, m.HA))
		case "recovery":
			moving = append(moving, m.Node+" waits for a host that its rules allow (recovery)")
		default:
			moving = append(moving, fmt.Sprintf("%s is started on another host once this one is fenced (%s)", m.Node, m.HA))
		}
	}

	parts := []string{"the host is offline, with " + strings.Join(all, ", ") + " on it", describeQuorum(s)}
	if len(moving) > 0 {
		parts = append(parts, "Proxmox' high availability: "+strings.Join(moving, ", "))
	}

	switch {
	case s.Placement.NoQuorum:
	case len(bound) == 0:
		parts = append(parts, "wait, and see docs/high-availability.md if a machine stays")
	case s.Quorum != nil && !*s.Quorum:
		parts = append(parts, fmt.Sprintf("bring %s back; only if it is gone for good: docs/recovery.md#the-majority-of-etcd-is-lost",
			host))
	default:
		parts = append(parts, fmt.Sprintf("if it comes back, wait: its machines start with it; only if it is gone for good: "+
			"talos-proxmox replace %s --host %s (docs/recovery.md#a-host-is-lost)", s.Placement.Stack, host))
	}

	return strings.Join(parts, "; ")
}

// describeQuorum says whether etcd has its majority, and by which members.
func describeQuorum(s request.ClusterStatus) string {
	switch {
	case s.Quorum == nil:
		return fmt.Sprintf("no member of etcd of cluster %s answers", s.Cluster)
	case !*s.Quorum:
		return fmt.Sprintf("etcd of cluster %s has lost its majority", s.Cluster)
	}

	var healthy []string

	for _, m := range s.Members {
		if m.Healthy {
			healthy = append(healthy, m.Name)
		}
	}

	return fmt.Sprintf("etcd of cluster %s has its majority (%d of %d members: %s)",
		s.Cluster, len(healthy), len(s.Members), strings.Join(healthy, ", "))
}
