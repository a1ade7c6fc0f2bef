package hostfacts

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// checkCapacity compares the plan with the host's cores and memory. Guests outside the plan count while they run.
func (c *checker) checkCapacity() {
	cores, memory := 0, int64(0)

	for _, n := range c.needs.Nodes {
		if n.Cores > c.facts.System.Cores {
			c.problem(c.host.Path,
				"%s has %d cores, and %s is planned with %d, which Proxmox does not start; give it fewer, or another host",
				c.host.Name, c.facts.System.Cores, n.Name, n.Cores)
		}

		cores += n.Cores
		memory += int64(n.MemoryMiB)
	}

	if cores > c.facts.System.Cores {
		c.warning(
			c.host.Path, "%d cores are planned on %s, which has %d; machines will wait for each other", cores, c.host.Name,
			c.facts.System.Cores,
		)
	}

	otherGuests := int64(0)

	for _, guest := range slices.Concat(c.facts.Machines, c.facts.Containers) {
		planned := slices.ContainsFunc(
			c.needs.Nodes, func(n spec.Node) bool { return guest.VMID.String() == fmt.Sprint(n.VMID) },
		)
		if guest.Status == "running" && !planned {
			otherGuests += guest.Memory / bytesPerMiB
		}
	}

	total := c.facts.System.MemoryKiB / kibPerMiB

	arc := max(c.facts.ZFS.ARCMax, c.facts.ZFS.ARCWanted) / bytesPerMiB
	switch needed := memory + otherGuests; {
	case memory > 0 && needed > total:
		c.problem(c.host.Path,
			"%s has %d MiB of memory, and %d MiB are planned on it beside %d MiB of guests that run there; make machines smaller, or place them elsewhere",
			c.host.Name, total, memory, otherGuests)
	case memory > 0 && needed+arc > total:
		c.warning(c.host.Path,
			"%s has %d MiB of memory: %d MiB are planned on it beside %d MiB of guests that run there, and ZFS' cache may take %d MiB; lower hosts[].prep.zfsArcMaxGiB or make machines smaller",
			c.host.Name, total, memory, otherGuests, arc)
	}
}

// checkPools checks ZFS pools, and gives advice on properties that are hard to change.
func (c *checker) checkPools() {
	size := int64(0)
	for _, pool := range c.facts.ZFS.Pools {
		size += pool.Size
		if pool.Health != healthOnline {
			c.problem(
				c.host.Path, "the ZFS pool %s of %s is %s: zpool status -x %s says why and what to do", pool.Name, c.host.Name,
				pool.Health, pool.Name,
			)
		}

		c.Advice = append(c.Advice, pool.advice(c.facts.System.PVE)...)
	}

	floor := int64(2*bytesPerGiB) + size/bytesPerTiB*bytesPerGiB
	if wanted := c.facts.ZFS.ARCWanted; wanted > 0 && wanted < floor {
		c.warning(c.host.Path+".prep.zfsArcMaxGiB",
			"gives ZFS' cache %.1f GiB on %s; 2 GiB and 1 more for each TiB of its pools are recommended (%d GiB)",
			float64(wanted)/bytesPerGiB, c.host.Name, floor/bytesPerGiB)
	}
}

func (p Pool) advice(pve string) []string {
	var advice []string

	add := func(format string, arguments ...any) {
		advice = append(advice, "pool "+p.Name+": "+fmt.Sprintf(format, arguments...))
	}
	if p.Ashift > 0 && p.Ashift < minAshift {
		add(
			"ashift is %d, but disks have sectors of 4 KiB; it is fixed when the pool is made: zpool create -o ashift=%d",
			p.Ashift, minAshift,
		)
	}

	if p.Compression == "off" {
		add("compression is off; it saves room and is faster than the disks: zfs set compression=lz4 %s", p.Name)
	}
	// From OpenZFS 2.3 on, which Proxmox VE 9 brought, on is sa.
	if p.Xattr == "dir" || p.Xattr == "off" || (p.Xattr == "on" && strings.HasPrefix(pve, "8.")) {
		add("xattr is %s; attributes kept with the file save a read each: zfs set xattr=sa %s", p.Xattr, p.Name)
	}

	for _, vdev := range p.Vdevs {
		switch {
		case strings.HasPrefix(vdev, "raidz"), strings.HasPrefix(vdev, "draid"):
			add("%s is not a mirror; VM disks write small blocks at random, which raidz is slow at and wastes room with: pools for VMs are made of mirrors", vdev)
		case !strings.HasPrefix(vdev, "mirror"):
			add("%s stands alone, and its data is lost with it: zpool attach %s %s <second disk>", vdev, p.Name, vdev)
		}
	}

	return advice
}
