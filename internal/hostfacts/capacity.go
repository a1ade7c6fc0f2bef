package hostfacts

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// capacity compares the plan with the host's real cores and memory. Guests of others count while they run.
func (j *judge) capacity() {
	cores, memory := 0, int64(0)

	for _, n := range j.needs.Nodes {
		if n.Cores > j.facts.System.Cores {
			j.problem(j.host.Path,
				"%s has %d cores, and %s is planned with %d, which Proxmox does not start; give it fewer, or another host",
				j.host.Name, j.facts.System.Cores, n.Name, n.Cores)
		}

		cores += n.Cores
		memory += int64(n.MemoryMiB)
	}

	if cores > j.facts.System.Cores {
		j.warning(
			j.host.Path, "%d cores are planned on %s, which has %d; machines will wait for each other", cores, j.host.Name,
			j.facts.System.Cores,
		)
	}

	others := int64(0)

	for _, guest := range slices.Concat(j.facts.Machines, j.facts.Containers) {
		planned := slices.ContainsFunc(
			j.needs.Nodes, func(n spec.Node) bool { return guest.VMID.String() == fmt.Sprint(n.VMID) },
		)
		if guest.Status == "running" && !planned {
			others += guest.Memory / bytesPerMiB
		}
	}

	total := j.facts.System.MemoryKiB / kibPerMiB

	arc := max(j.facts.ZFS.ARCMax, j.facts.ZFS.ARCWanted) / bytesPerMiB
	switch needed := memory + others; {
	case memory > 0 && needed > total:
		j.problem(j.host.Path,
			"%s has %d MiB of memory, and %d MiB are planned on it beside %d MiB of guests that run there; make machines smaller, or place them elsewhere",
			j.host.Name, total, memory, others)
	case memory > 0 && needed+arc > total:
		j.warning(j.host.Path,
			"%s has %d MiB of memory: %d MiB are planned on it beside %d MiB of guests that run there, and ZFS' cache may take %d MiB; lower hosts[].prep.zfsArcMaxGiB or make machines smaller",
			j.host.Name, total, memory, others, arc)
	}
}

// pools judges ZFS, and advises on what cannot be changed without care.
func (j *judge) pools() {
	size := int64(0)
	for _, pool := range j.facts.ZFS.Pools {
		size += pool.Size
		if pool.Health != healthOnline {
			j.problem(
				j.host.Path, "the ZFS pool %s of %s is %s: zpool status -x %s says why and what to do", pool.Name, j.host.Name,
				pool.Health, pool.Name,
			)
		}

		j.Advice = append(j.Advice, pool.advice(j.facts.System.PVE)...)
	}

	floor := int64(2*bytesPerGiB) + size/bytesPerTiB*bytesPerGiB
	if wanted := j.facts.ZFS.ARCWanted; wanted > 0 && wanted < floor {
		j.warning(j.host.Path+".prep.zfsArcMaxGiB",
			"gives ZFS' cache %.1f GiB on %s; 2 GiB and 1 more for each TiB of its pools are recommended (%d GiB)",
			float64(wanted)/bytesPerGiB, j.host.Name, floor/bytesPerGiB)
	}
}

func (p Pool) advice(pve string) []string {
	var advice []string

	say := func(format string, arguments ...any) {
		advice = append(advice, "pool "+p.Name+": "+fmt.Sprintf(format, arguments...))
	}
	if p.Ashift > 0 && p.Ashift < leastAshift {
		say(
			"ashift is %d, but disks have sectors of 4 KiB; it is fixed when the pool is made: zpool create -o ashift=%d",
			p.Ashift, leastAshift,
		)
	}

	if p.Compression == "off" {
		say("compression is off; it saves room and is faster than the disks: zfs set compression=lz4 %s", p.Name)
	}
	// From OpenZFS 2.3 on, which Proxmox VE 9 brought, on is sa.
	if p.Xattr == "dir" || p.Xattr == "off" || (p.Xattr == "on" && strings.HasPrefix(pve, "8.")) {
		say("xattr is %s; attributes kept with the file save a read each: zfs set xattr=sa %s", p.Xattr, p.Name)
	}

	for _, vdev := range p.Vdevs {
		switch {
		case strings.HasPrefix(vdev, "raidz"), strings.HasPrefix(vdev, "draid"):
			say("%s is not a mirror; VM disks write small blocks at random, which raidz is slow at and wastes room with: pools for VMs are made of mirrors", vdev)
		case !strings.HasPrefix(vdev, "mirror"):
			say("%s stands alone, and its data is lost with it: zpool attach %s %s <second disk>", vdev, p.Name, vdev)
		}
	}

	return advice
}
