package preflight

import (
	"slices"

	"talos-proxmox/internal/spec"
)

// firstHARules is the major version of Proxmox VE since which high availability has rules.
const firstHARules = 9

// checkHA checks whether other hosts could start the machines that have high availability.
func (c *checker) checkHA() {
	reported := map[string]bool{}

	for _, m := range c.planned.machines {
		if m.HA == nil || reported[m.Path] {
			continue
		}

		reported[m.Path] = true
		at := m.Path + ".ha"

		switch major := c.site.major(); {
		case major != 0 && major < firstHARules:
			c.problem("", at, nil, "needs Proxmox VE %d, whose high availability has rules, and %s answers: upgrade it, or remove ha",
				firstHARules, c.site.Version)
		case len(c.site.Hosts) == 1:
			c.problem("", at, nil, "needs a Proxmox cluster, and %s is a host of its own: remove ha, or join it to a cluster", m.Host)
		default:
			c.checkSharedDisks(m)
		}
	}
}

// checkSharedDisks refuses disks that only the machine's host has: Proxmox would move its configuration to another
// host, fail to start it there, and leave it in the state "error" after the dead host has come back.
func (c *checker) checkSharedDisks(m machine) {
	disks := m.disks()
	if m.Template.Source == spec.SourceISO {
		path := "templates." + m.Template.Class + ".imageDatastore"
		disks = append(disks, disk{datastore: m.Template.ImageDatastore, path: path})
	}

	var reported []string

	for _, d := range disks {
		h := c.site.host(m.Host)
		if slices.Contains(reported, d.path) || h.Storages == nil {
			continue
		}

		if s, found := h.storage(d.datastore); found && s.Shared == 0 {
			reported = append(reported, d.path)

			c.problem(m.Host, d.path, d.datastore, "is of %s alone, and %s has ha: another host could not start it; use a datastore "+
				"that all hosts share (`pvesm status`, Datacenter, Storage), or remove ha", m.Host, m.Name)
		}
	}
}
