package vmdiff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// DiskOptions are the options of an additional disk. The provider does not change those of a clone's system disk.
type DiskOptions struct {
	IOThread, SSD bool
	// Discard, Cache and AIO are those of Proxmox; empty = its defaults, as in [DiskOptions.withDefaults].
	Discard, Cache, AIO string
}

func (o DiskOptions) withDefaults() DiskOptions {
	o.Discard, o.Cache = cmp.Or(o.Discard, "ignore"), cmp.Or(o.Cache, spec.DefaultCache)
	o.AIO = cmp.Or(o.AIO, spec.DefaultAIO)

	return o
}

// plannedOptions returns the options of a planned disk.
func plannedOptions(d spec.Disk) DiskOptions {
	o := DiskOptions{IOThread: d.IOThread, SSD: !d.IsVirtIO() && (d.SSD == nil || *d.SSD), Cache: d.Cache, AIO: d.AIO}
	if d.Discard == nil || *d.Discard {
		o.Discard = "on"
	}

	return o.withDefaults()
}

// compareDisks compares disks by their interfaces. The provider neither removes nor shrinks disks.
func (c *comparison) compareDisks(old, wanted Machine) {
	attached, removed := map[string]Disk{}, []string{}
	for _, d := range old.Disks {
		attached[d.Interface] = d
		if !slices.ContainsFunc(wanted.Disks, func(w Disk) bool { return w.Interface == d.Interface }) {
			removed = append(removed, fmt.Sprintf("%s (%d GiB on %s)", d.Interface, d.SizeGiB, d.Datastore))
		}
	}

	if len(removed) > 0 {
		c.addImpossible(
			"disks", "extraDisks", "",
			fmt.Sprintf("disk %s of %s would have to be removed, and no run removes a disk from a machine; set it again, or "+
				recreate, strings.Join(removed, ", "), old.Name),
		)

		return
	}

	for i, is := range wanted.Disks {
		key := func(name string) string {
			if i == 0 {
				return map[string]string{"sizeGiB": "diskGiB", "datastore": "datastore"}[name]
			}

			return fmt.Sprintf("extraDisks[%d].%s", i-1, name)
		}

		was, found := attached[is.Interface]
		switch {
		case !found && wanted.HasCSI && strings.HasPrefix(is.Interface, "scsi"):
			c.addImpossible(
				"disks", key("interface"), fmt.Sprintf("%q", is.Interface),
				fmt.Sprintf("is where the Proxmox CSI plugin may have attached a volume to %s since: a disk there would take the "+
					"volume's place; leave interface out, or choose one from virtio0 to virtio15", old.Name),
			)
		case !found:
			c.add(
				"disks", fmt.Sprintf("extraDisks[%d]", i-1), InPlace,
				fmt.Sprintf("disk %s of %d GiB is added", is.Interface, is.SizeGiB),
			)

			continue
		case is.Volume != was.Volume:
			c.addImpossible("disks", key("volume"), fmt.Sprintf("%q", is.Volume),
				fmt.Sprintf("is not what %s has at %s (%s), and no run makes a volume of a disk, a disk of a volume, or renames "+
					"one; restore it, or add a disk with it and copy the data", old.Name, is.Interface, describeVolume(was.Volume)))

			continue
		case is.SizeGiB < was.SizeGiB:
			c.addImpossible("disks", key("sizeGiB"), fmt.Sprint(is.SizeGiB),
				fmt.Sprintf("is less than the %d GiB that %s has at %s, and disks cannot shrink; use at least %[1]d",
					was.SizeGiB, old.Name, is.Interface))
		case is.SizeGiB > was.SizeGiB && was.Shared:
			c.addImpossible("disks", key("sizeGiB"), fmt.Sprint(is.SizeGiB),
				fmt.Sprintf("is more than the %d GiB that %s has at %s, where it is a linked clone that shares its template's "+
					"volume, and the provider does not resize that; set %[1]d, or "+recreate, was.SizeGiB, old.Name, is.Interface))
		case is.SizeGiB > was.SizeGiB:
			c.add("disks", key("sizeGiB"), InPlace, fmt.Sprintf("disk %s %d → %d GiB", is.Interface, was.SizeGiB, is.SizeGiB))
		}

		if i > 0 {
			c.compareDiskOptions(old.Name, was, is, key)
		}

		switch {
		case was.Datastore == is.Datastore:
		case is.Volume != "":
			c.addImpossible("disks", key("datastore"), fmt.Sprintf("%q", is.Datastore),
				fmt.Sprintf("is not %s, where volume %s of %s is, and no run moves a volume; set %[1]s, or add a disk with another "+
					"volume and copy the data", was.Datastore, is.Volume, old.Name))
		case i == 0:
			suggestion := ""
			if spec.Distance(was.Datastore, is.Datastore) <= 2 { // letters
				suggestion = " (did you mean that?)"
			}

			// The EFI disk would move, too, and the provider mistakes its size whenever both change.
			c.addImpossible("disks", key("datastore"), fmt.Sprintf("%q", is.Datastore),
				fmt.Sprintf("is not %s%s, where %s has its system disk, and no run can move that with its EFI disk; set %[1]s, or "+
					recreate, was.Datastore, suggestion, old.Name))
		default:
			c.add(
				"disks", key("datastore"), Restart,
				fmt.Sprintf("disk %s %s → %s, off while it is copied", is.Interface, was.Datastore, is.Datastore),
			)
		}
	}
}

func describeVolume(name string) string {
	if name == "" {
		return "a disk that is deleted with it"
	}

	return "volume " + name
}

// compareDiskOptions compares the options of an additional disk. Proxmox keeps them pending until the machine starts
// again; the provider restarts it for another aio, and the program for the others.
func (c *comparison) compareDiskOptions(machine string, old, wanted Disk, key func(string) string) {
	was, is := old.Options.withDefaults(), wanted.Options.withDefaults()
	at := "disk " + wanted.Interface + " "

	if is.IOThread && !strings.HasPrefix(wanted.Interface, "virtio") {
		c.addImpossible("disks", key("iothread"), "true", fmt.Sprintf("is for disks at virtio0 to virtio15, and %s has this one "+
			"at %s; remove it", machine, wanted.Interface))

		return
	}

	addIfChanged(c, "disks", key("iothread"), Restart, at+"I/O thread %v → %v", was.IOThread, is.IOThread)
	addIfChanged(c, "disks", key("ssd"), Restart, at+"solid-state %v → %v", was.SSD, is.SSD)
	addIfChanged(c, "disks", key("discard"), Restart, at+"discard %s → %s", was.Discard, is.Discard)
	addIfChanged(c, "disks", key("cache"), Restart, at+"cache %s → %s", was.Cache, is.Cache)
	addIfChanged(c, "disks", key("aio"), Restart, at+"aio %s → %s", was.AIO, is.AIO)
}
