package preflight

import (
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// hosts finds those that Proxmox does not know, and those that are away.
func (j *judge) hosts() {
	if j.site.Hosts == nil {
		return
	}

	known := strings.Join(slices.Sorted(maps.Keys(j.site.Hosts)), ", ")
	for _, h := range j.plan.Hosts {
		found, there := j.site.Hosts[h.Name]
		switch fresh := j.work.on(h.Name); {
		case !there:
			j.problem(h.Name, h.Path+".name", h.Name, "is not a host of this Proxmox cluster (there are %s): correct "+
				"the name, or join the host to the cluster", known)
		case found.Status == statusUnknown:
			j.warn(h.Name, h.Path+".name", h.Name, "tells nothing of itself: `systemctl restart pvestatd` there; until "+
				"then nobody knows what its cores and storages are used for")
		case found.Status != statusOffline:
			j.fine(h.Name, "is %s", found.Status)
		case len(fresh) > 0:
			j.problem(h.Name, h.Path+".name", h.Name, "is offline, and %s: bring it back (`pvecm status` and "+
				"`systemctl status pve-cluster corosync` there), or place them elsewhere",
				toBeMade(fresh))
		default:
			j.warn(h.Name, h.Path+".name", h.Name, "is offline: what is on it can neither be read nor changed")
		}
	}
}

// toBeMade says what is new, by its first names.
func toBeMade(names []string) string {
	const most = 3

	text := strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		text += ", …"
	}

	if len(names) == 1 {
		return text + " is to be made there"
	}

	return text + " are to be made there"
}

// quorum is needed for whatever is written. Who may not ask for it sees how many hosts are away.
func (j *judge) quorum() {
	if j.site.NoQuorum {
		j.add(severity(j.work.anything()), "", "hosts", nil,
			"Proxmox's cluster has no quorum, so that nothing can be made or changed: `pvecm status` on a host "+
				"shows who is missing; running machines keep running")

		return
	}

	away := 0

	for _, h := range j.site.Hosts {
		if h.Status == statusOffline {
			away++
		}
	}

	if away > 0 && 2*away >= len(j.site.Hosts) {
		j.warn("", "hosts", nil, "%d of the %d hosts of Proxmox's cluster are offline, so that it may have no "+
			"quorum and nothing can be made or changed: `pvecm status` on a host shows it",
			away, len(j.site.Hosts))
	}
}

// Statuses of a host that the others do not see, and of one whose pvestatd has not told its figures lately.
const (
	statusOffline = "offline"
	statusUnknown = "unknown"
)

// cores finds machines that Proxmox does not start, and templates that start only while they are built. The plan itself
// knows the hosts whose size is set.
func (j *judge) cores() {
	for _, m := range j.work.machines {
		if cores := j.site.host(m.Host).Cores; cores > 0 && m.Cores > cores && !j.stated(m.Host) {
			j.problem(m.Host, m.Path+".cores", nil, "gives %s %d cores, and %s has %d: Proxmox does not start such "+
				"a machine; give it fewer, or another host",
				m.Name, m.Cores, m.Host, cores)
		}
	}

	for _, t := range j.work.templates {
		if cores := j.site.host(t.Host).Cores; cores > 0 && t.Cores > cores && t.System != nil && !t.built {
			j.problem(t.Host, t.path+".cores", nil, "%d cores are more than the %d of %s, and the template starts there while "+
				"it is built: give it fewer; machines have cores of their own", t.Cores, cores, t.Host)
		}
	}
}

func (j *judge) stated(host string) bool {
	return slices.ContainsFunc(j.plan.Hosts, func(h spec.Host) bool { return h.Name == host && h.Cores > 0 })
}
