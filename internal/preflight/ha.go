package preflight

import (
	"slices"

	"talos-proxmox/internal/hostfacts"
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
			c.checkSharedVolumes(m, reported)
		}
	}
}

// checkSharedVolumes warns of storage classes for the Proxmox CSI plugin whose volumes only one host has: Proxmox
// cannot start a node on another host while such a volume is attached to it.
func (c *checker) checkSharedVolumes(m machine, reported map[string]bool) {
	if m.Of == nil || m.Of.Proxmox == nil {
		return
	}

	h := c.site.host(m.Host)

	for _, class := range m.Of.Proxmox.StorageClasses {
		if s, found := h.storage(class.Datastore); found && s.Shared == 0 && !reported[class.Path] {
			reported[class.Path] = true
			c.warn("", class.Path+".datastore", class.Datastore, "is not shared by the hosts, and %s has ha: with a volume of the class "+
				"%s attached, Proxmox cannot start it on another host; use a shared datastore, or keep pods with such volumes off nodes with ha",
				m.Name, class.Name)
		}
	}
}

// checkSharedDisks refuses disks that only the machine's host has, and that are not copied to the others: Proxmox would
// move its configuration to another host, fail to start it there, and leave it in the state "error" after the dead host
// has come back.
func (c *checker) checkSharedDisks(m machine) {
	disks, image := m.disks(), ""
	if m.Template.Source == spec.SourceISO {
		image = "templates." + m.Template.Class + ".imageDatastore"
		disks = append(disks, disk{datastore: m.Template.ImageDatastore, path: image})
	}

	var (
		reported []string
		copied   bool
	)

	h := c.site.host(m.Host)

	for _, d := range disks {
		s, found := h.storage(d.datastore)
		if !found || s.Shared != 0 || slices.Contains(reported, d.path) {
			copied = copied || !found // unknown here

			continue
		}

		reported = append(reported, d.path)

		switch {
		case m.HA.Replication == nil || d.path == image:
			hint := ""
			if m.isReplicable(s, d.path == image) {
				hint = ". Disks of workers on ZFS can be copied: ha.replication"
			}

			c.problem(m.Host, d.path, d.datastore, "is of %s alone, and %s has ha: another host could not start it; use a datastore "+
				"that all hosts share (`pvesm status`, Datacenter, Storage), or remove ha%s", m.Host, m.Name, hint)
		case s.Type != replicableStorage:
			copied = true // reported here

			c.problem(m.Host, d.path, d.datastore, "is of type %s, and Proxmox replicates disks of ZFS pools (zfspool) alone: use one, or "+
				"a datastore that all hosts share, or remove ha", s.Type)
		default:
			copied = true

			c.checkTargets(m, d)
		}
	}

	if m.HA.Replication != nil && !copied {
		c.problem(m.Host, m.Path+".ha.replication", nil, "has nothing to copy: all hosts share the datastores of %s; remove it", m.Name)
	}
}

// replicableStorage is the only type of storage whose volumes Proxmox replicates (ZFSPoolPlugin of pve-storage 9.1.7).
const replicableStorage = "zfspool"

// isReplicable reports whether replication would help a disk.
func (m machine) isReplicable(s hostfacts.Storage, image bool) bool {
	return !image && s.Type == replicableStorage && m.Role != spec.RoleControlPlane
}

// checkTargets refuses other hosts of a machine that cannot have a copy of a disk.
func (c *checker) checkTargets(m machine, d disk) {
	for _, name := range m.HA.Hosts {
		target := c.site.host(name)
		if name == m.Host || target.Storages == nil {
			continue
		}

		if s, found := target.storage(d.datastore); !found || s.Enabled == 0 || s.Type != replicableStorage {
			c.problem(name, d.path, d.datastore, "is no ZFS pool on %s, to which ha.replication copies the disks of %s: create a storage of "+
				"this name there, or leave the host out of hosts", name, m.Name)
		}
	}
}
