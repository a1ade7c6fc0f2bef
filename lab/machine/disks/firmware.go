package disks

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
)

// FindSystem returns the first operating system in a boot order, as firmware does. The volume is empty for an ISO; the
// problem says why nothing boots.
func FindSystem(
	order []datacentre.GuestDisk, read func(volume string) (image.Image, error),
) (found image.Image, volume, problem string) {
	tried := make([]string, 0, len(order))

	for _, disk := range order {
		img, err := read(disk.Volume)

		switch {
		case err != nil:
			tried = append(tried, fmt.Sprintf("%s: %s", disk.Interface, err))
		case img.OS == "":
			tried = append(tried, disk.Interface+": blank")
		case img.OS != "talos":
			return img, disk.Volume, ""
		case img.Arch != "amd64":
			tried = append(tried, fmt.Sprintf("%s: Talos for %s, and the machine's processor is x86", disk.Interface, img.Arch))
		case img.Live:
			return img, "", ""
		default:
			return img, disk.Volume, ""
		}
	}

	return image.Image{}, "", fmt.Sprintf(
		"no bootable device (%s): give the VM a disk with an image or an ISO, and a boot order", strings.Join(tried, ", "),
	)
}

// HasInstalledTalos reports whether one of the disks has an installed Talos.
func (ds *Disks) HasInstalledTalos(read func(volume string) (image.Image, error)) bool {
	return slices.ContainsFunc(ds.devices, func(d Device) bool {
		if d.CDROM {
			return false
		}

		img, err := read(d.Volume)

		return err == nil && img.OS == "talos" && !img.Live
	})
}
