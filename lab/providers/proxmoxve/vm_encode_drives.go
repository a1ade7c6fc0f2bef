package proxmoxve

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// diskOptions returns the options of a disk that an update may change and that its bus supports.
func diskOptions(d object) options {
	switch iface := str(d, "interface"); {
	case strings.HasPrefix(iface, "sata"), strings.HasPrefix(iface, "ide"):
		return diskTable().options(d, "iothread")
	case strings.HasPrefix(iface, "virtio"):
		return diskTable().options(d, "ssd")
	}

	return diskTable().options(d)
}

// encodeNewDisk returns a disk that Proxmox allocates, or that has an existing volume. Without a format it sends qcow2,
// which block storages refuse.
func encodeNewDisk(d object) string {
	format := str(d, "fileFormat")
	if format == "" {
		format = "qcow2"
	}

	volume := str(d, "pathInDatastore")
	if volume == "" {
		volume = strconv.Itoa(num(d, "size"))
	}

	o := options{
		"file=" + str(d, "datastoreId") + ":" + volume, "format=" + format,
		fmt.Sprintf("size=%d", num(d, "size")<<30),
	}

	return append(o, diskOptions(d)...).String()
}

// encodeMedia returns a CD-ROM or cloud-init drive. The published provider's trailing comma is valid for Proxmox.
func encodeMedia(volume string) string { return "file=" + volume + ",media=cdrom," }

// encodeEFI returns a new EFI disk; Proxmox ignores the size of 1.
func encodeEFI(efi object, format string) string {
	o := options{"file=" + str(efi, "datastoreId") + ":1", "format=" + format, "efitype=" + str(efi, "type")}
	o.add("pre-enrolled-keys", formatBool(flag(efi, "preEnrolledKeys")))

	return o.String()
}

// encodeTPM returns a new TPM state; Proxmox ignores the size of 1.
func encodeTPM(tpm object) string {
	return "file=" + str(tpm, "datastoreId") + ":1,version=" + str(tpm, "version")
}

// encodeDrives adds the disks, CD-ROM, cloud-init drive, EFI disk and TPM of a new machine, and its boot order.
func encodeDrives(f form, plan object) {
	cdrom := child(plan, "cdrom")

	var boot []string
	if flag(cdrom, "enabled") {
		boot = append(boot, str(cdrom, "interface"))
	}

	disks := map[string]string{}
	for _, d := range children(plan, "disks") {
		disks[str(d, "interface")] = encodeNewDisk(d)
	}

	for _, first := range []string{"ide0", "sata0", "scsi0", "virtio0"} {
		if _, ok := disks[first]; ok {
			boot = append(boot, first)
		}
	}

	if len(list(plan, "networkDevices")) > 0 {
		boot = append(boot, "net0")
	}

	if initialization := child(plan, "initialization"); initialization != nil {
		drive := str(initialization, "interface")
		if drive == "" {
			drive = "ide2"
		}

		disks[drive] = encodeMedia(str(initialization, "datastoreId") + ":cloudinit")
	}

	if flag(cdrom, "enabled") {
		disks[str(cdrom, "interface")] = encodeMedia(cdromVolume(cdrom))
	}

	maps.Copy(f, disks)

	if efi := child(plan, "efiDisk"); efi != nil {
		format := str(efi, "fileFormat")
		if format == "" {
			format = "raw"
		}

		f["efidisk0"] = encodeEFI(efi, format)
	}

	if tpm := child(plan, "tpmState"); tpm != nil {
		f["tpmstate0"] = encodeTPM(tpm)
	}

	if len(boot) > 0 && f["boot"] == "" {
		f["boot"] = "order=" + strings.Join(boot, ";")
	}
}

// cdromVolume returns the medium, or the host's own drive if there is none.
func cdromVolume(cdrom object) string {
	if id := str(cdrom, "fileId"); id != "" {
		return id
	}

	return "cdrom"
}
