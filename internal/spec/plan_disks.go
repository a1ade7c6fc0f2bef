package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
)

// maxDefaultDisks is the number of additional disks with a default interface, from virtio1 to virtio15.
const maxDefaultDisks = 15

// Defaults of a disk's options, which the templates' system disks have as well.
const (
	DefaultCache = "none"
	DefaultAIO   = "io_uring"
)

func (p *planner) planDisks(g *pool, datastore string) []Disk {
	var disks []Disk

	for i, c := range g.ExtraDisks {
		at := fmt.Sprintf("%s.extraDisks[%d]", g.path, i)
		p.checkFormat(at+".datastore", c.Datastore, datastoreFormat)
		p.checkFormat(at+".interface", c.Interface, interfaceFormat)

		d := Disk{
			Interface: cmp.Or(c.Interface, fmt.Sprintf("virtio%d", i+1)), InterfacePinned: c.Interface != "",
			SizeGiB: c.SizeGiB, Datastore: cmp.Or(c.Datastore, datastore), Volume: c.Volume,
		}
		d.setOptions(c)

		if c.Interface == "" && i == maxDefaultDisks {
			p.problems.Add(at, nil, "is one disk too many for virtio1 to virtio15; remove it, or set its interface")
		}

		if j := slices.IndexFunc(disks, func(o Disk) bool { return o.Interface == d.Interface }); j >= 0 {
			p.problems.Add(
				at+".interface", d.Interface, "is the place of extraDisks[%d] too; choose another from virtio0 to virtio15", j,
			)
		}

		if j := slices.IndexFunc(disks, func(o Disk) bool { return o.Volume == d.Volume }); j >= 0 && d.Volume != "" {
			p.problems.Add(at+".volume", d.Volume, "is the name of extraDisks[%d] too; choose another", j)
		}

		if !p.problems.Has(at + ".interface") {
			*p.problems = append(*p.problems, d.CheckOptions(at+".")...)
		}

		disks = append(disks, d)
	}

	return disks
}

// setOptions sets the options that differ from the defaults, so that plans and states of other disks stay as they are.
func (d *Disk) setOptions(c DiskConfig) {
	d.IOThread = c.IOThread

	if !c.SSD {
		d.SSD = &c.SSD
	}

	if !c.Discard {
		d.Discard = &c.Discard
	}

	if c.Cache != DefaultCache {
		d.Cache = c.Cache
	}

	if c.AIO != DefaultAIO {
		d.AIO = c.AIO
	}
}

// IsVirtIO reports whether the disk is a VirtIO block device, instead of a disk of the SCSI controller.
func (d Disk) IsVirtIO() bool { return strings.HasPrefix(d.Interface, "virtio") }

// CheckOptions returns options that exclude each other or that Proxmox does not have for the disk's interface, and a
// volume whose name cannot be part of Proxmox'. The
// machines' controller, virtio-scsi-pci, has no I/O threads: Proxmox ignores them, with a warning at every start. QEMU
// does not start with native I/O through the host's cache.
func (d Disk) CheckOptions(path string) (found problem.List) {
	if d.IOThread && !d.IsVirtIO() {
		found.Add(path+"iothread", true, "is for disks at virtio0 to virtio15, and this one is at %s; remove it, or choose "+
			"another interface", d.Interface)
	}

	if d.SSD != nil && !*d.SSD && d.IsVirtIO() {
		found.Add(path+"ssd", false, "is for disks at scsi1 to scsi30, and this one is at %s; remove it, or choose another "+
			"interface", d.Interface)
	}

	if cached := d.Cache == "writethrough" || d.Cache == "writeback"; cached && d.AIO == "native" {
		found.Add(path+"aio", d.AIO,
			"needs a disk that the host does not cache; set cache to none or directsync, or remove aio")
	}

	if d.Volume != "" && !volumeFormat.pattern.MatchString(d.Volume) {
		found.Add(path+"volume", d.Volume, "%s", volumeFormat.remedy)
	}

	return found
}

// checkVolumeKeys reports user volumes that a pool's next machine could not open on a disk that outlives the last one.
// Which user volume is on which disk, only the machines know.
func (p *planner) checkVolumeKeys(g *pool, cluster Cluster) {
	outlives := slices.IndexFunc(g.ExtraDisks, func(d DiskConfig) bool { return d.Volume != "" })
	if outlives < 0 {
		return
	}

	for _, n := range g.nodes {
		volumes, err := n.Volumes(cluster.Patches)
		if err != nil {
			continue // of a patch, which is reported
		}

		if bound := volumes.BoundToMachine(); len(bound) > 0 {
			p.problems.Add(fmt.Sprintf("%s.extraDisks[%d].volume", g.path, outlives), g.ExtraDisks[outlives].Volume,
				"outlives its machine, whose next one cannot open %s: keys of nodeID and tpm are those of one machine; give user "+
					"volumes of this pool the key static, or remove volume", strings.Join(bound, ", "))

			return
		}
	}
}
