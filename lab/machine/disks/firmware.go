package disks

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
)

// Firmware is a machine's firmware.
type Firmware struct {
	UEFI bool
	// Keys are the owner of the enrolled keys of Secure Boot; empty = setup mode, which boots everything.
	Keys string
}

// Owners of keys of Secure Boot.
const (
	KeysOfMicrosoft = "microsoft" // they sign the boot loaders of distributions
	KeysOfTalos     = "talos"     // the Image Factory's
)

// refusal returns why the firmware does not start a system; empty = it does.
func (f Firmware) refusal(img image.Image) string {
	const denied = "Access Denied: its boot loader is not signed with the keys in the EFI disk"

	switch {
	case img.SecureBoot && !f.UEFI:
		return "an image for Secure Boot has no boot loader for a BIOS"
	case f.UEFI && f.Keys == KeysOfTalos && !img.SecureBoot, f.UEFI && f.Keys == KeysOfMicrosoft && img.OS == "talos":
		return denied
	default:
		return ""
	}
}

// FindSystem returns the first operating system in a boot order that the firmware starts. The volume is empty for an
// ISO; the problem says why nothing boots.
func FindSystem(
	firmware Firmware, order []datacentre.GuestDisk, read func(volume string) (image.Image, error),
) (found image.Image, volume, problem string) {
	tried := make([]string, 0, len(order))

	for _, disk := range order {
		img, err := read(disk.Volume)

		switch {
		case err != nil:
			tried = append(tried, fmt.Sprintf("%s: %s", disk.Interface, err))
		case img.OS == "":
			tried = append(tried, disk.Interface+": blank")
		case firmware.refusal(img) != "":
			tried = append(tried, disk.Interface+": "+firmware.refusal(img))
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
