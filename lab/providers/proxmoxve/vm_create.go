package proxmoxve

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// buildVM creates a machine with new disks and tells whether there is something to keep.
func buildVM(ctx context.Context, m machine, plan object) (bool, error) {
	f := form{
		"vmid":   strconv.Itoa(m.id),
		"agent":  encodeAgent(child(plan, "agent")),
		"ostype": str(child(plan, "operatingSystem"), "type"),
		"vga":    encodeVGA(child(plan, "vga")),
	}

	f.some("pool", str(plan, "poolId"))

	for name, a := range virtualMachine() {
		if a.key != "" {
			f.add(attributes{name: a}.encoded(plan, name))
		}
	}

	encodeCPU(f, child(plan, "cpu"))
	encodeMemory(f, child(plan, "memory"), m.id)
	encodeNetwork(f, children(plan, "networkDevices"))
	encodeMany(f, plan)

	if err := encodePCI(f, children(plan, "hostpcis")); err != nil {
		return false, err
	}

	encodeDrives(f, plan)

	return createCall(ctx, m, f)
}

// encodeMany adds what is sent the same way for new machines and clones.
func encodeMany(f form, plan object) {
	for i, serial := range children(plan, "serialDevices") {
		f[fmt.Sprintf("serial%d", i)] = str(serial, "device")
	}

	if startup := child(plan, "startup"); startup != nil {
		f.some("startup", encodeStartup(startup))
	}

	f.some("tags", encodeTags(words(plan, "tags")))
}

// encodeDrives adds disks, CD-ROM, cloud-init and EFI disk of a new machine, and the order in which it boots from them.
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

	if stated := words(plan, "bootOrders"); len(stated) > 0 {
		boot = stated
	}

	if initialization := child(plan, "initialization"); initialization != nil {
		drive := str(initialization, "interface")
		if drive == "" {
			drive = "ide2"
		}

		disks[drive] = encodeMedia(str(initialization, "datastoreId") + ":cloudinit")
		encodeCloudInit(f, initialization)
	}

	if flag(cdrom, "enabled") {
		disks[str(cdrom, "interface")] = encodeMedia(cdromVolume(cdrom))
	}

	for name, value := range disks {
		f[name] = value
	}

	if efi := child(plan, "efiDisk"); efi != nil {
		format := str(efi, "fileFormat")
		if format == "" {
			format = "raw"
		}

		f["efidisk0"] = encodeEFI(efi, format)
	}

	if len(boot) > 0 {
		f["boot"] = "order=" + strings.Join(boot, ";")
	}
}

// cdromVolume is the host's own drive where no medium is set.
func cdromVolume(cdrom object) string {
	if id := str(cdrom, "fileId"); id != "" {
		return id
	}

	return "cdrom"
}

// createCall asks three times, with a deletion of VM 0 in between, which never exists: a slip of the published provider
// that servers must bear.
func createCall(ctx context.Context, m machine, f form) (bool, error) {
	var (
		upid  string
		tried bool
	)

	err := m.api.tries(ctx, 3, 1, always, func() error {
		if tried {
			_ = machine{api: m.api, host: m.host}.destroy(ctx) //nolint:errcheck // see above
		}

		tried = true

		return m.api.call(ctx, http.MethodPost, "/nodes/"+m.host+"/qemu", f, &upid)
	})
	if err != nil {
		return false, fmt.Errorf("error creating VM: %w", err)
	}

	if err := m.api.wait(ctx, upid, waitOptions{undo: true}); err != nil {
		return false, fmt.Errorf("error waiting for VM creation: %w", err)
	}

	return true, nil
}
