package proxmoxve

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// cloneVM clones a template and configures the clone. It reports whether the clone exists, even with an error.
func cloneVM(ctx context.Context, m machine, plan object) (bool, error) {
	if err := cloneSource(ctx, m, plan); err != nil {
		return false, err
	}

	if err := m.waitUnlocked(ctx); err != nil {
		return true, err
	}

	before, err := m.config(ctx)
	if err != nil {
		return true, err
	}

	f, del, err := cloneForm(ctx, m, plan, before)
	if err != nil {
		return true, err
	}

	if err := m.setConfig(ctx, f, del); err != nil {
		return true, err
	}

	after, err := m.config(ctx)
	if err != nil {
		return true, err
	}

	if err := m.adjustDisks(ctx, plan, after); err != nil {
		return true, err
	}

	if err := m.adjustEFIDisk(ctx, plan, after); err != nil {
		return true, err
	}

	return true, m.adjustTPM(ctx, plan, after)
}

// keptByClone are properties that a clone takes from its template, or from the clone request.
var keptByClone = []string{"bootOrders", "description", "machine", "name"}

// cloneForm returns the one large change after the clone. Where the program sets the published default, or nothing, a
// clone also keeps the template's settings, but not its blocks.
func cloneForm(ctx context.Context, m machine, plan object, before map[string]string) (form, []string, error) {
	f, del := form{}, []string{}

	for name, a := range virtualMachineTable() {
		if plan[name] == nil || !a.isConfigKey() || slices.Contains(keptByClone, name) ||
			a.kind != block && name != "onBoot" && a.equal(plan[name], a.fallback) {
			continue
		}

		absent := a.encode(f, plan[name])
		if name == "networkDevices" || name == "serialDevices" {
			del = append(del, absent...)
		}
	}

	f.dropEmpty()

	if cdrom := child(plan, "cdrom"); cdrom != nil {
		// As published, also a disabled drive.
		f[str(cdrom, "interface")] = encodeMedia(cdromVolume(cdrom))
	}

	initialization := child(plan, "initialization")
	if initialization == nil {
		return f, del, nil
	}

	existing := cloudInitDrive(before, m.id, "ide2")

	drive := str(initialization, "interface")
	if drive == "" {
		drive = existing
	}

	if err := m.deleteDrives(ctx, drive, existing); err != nil {
		return nil, nil, err
	}

	f[drive] = encodeMedia(str(initialization, "datastoreId") + ":cloudinit")

	return f, del, nil
}

// deleteDrives deletes the previous cloud-init drive, and the drive that becomes the new one.
func (m machine) deleteDrives(ctx context.Context, drive, existing string) error {
	del := []string{drive}
	if existing != "" && existing != drive {
		del = append(del, existing)
	}

	return m.setConfig(ctx, form{}, del)
}

// adjustDisks moves and resizes the clone's disks, and adds those that the template does not have.
func (m machine) adjustDisks(ctx context.Context, plan object, config map[string]string) error {
	for _, d := range children(plan, "disks") {
		iface, storage, size := str(d, "interface"), str(d, "datastoreId"), num(d, "size")

		current, exists := config[iface]
		if !exists {
			if err := m.setConfig(ctx, form{iface: encodeNewDisk(d)}, nil); err != nil {
				return fmt.Errorf("disk update fails: %w", err)
			}

			continue
		}

		o := parseOptions(current, "file")

		has, err := parseSize(o["size"])
		if err != nil {
			return err
		}

		if size < int(has>>30) {
			return fmt.Errorf("disk resize fails requests size (%dG) is lower than current size (%d): use at least the size of the template's %s", size, has, iface)
		}

		if at, _, _ := strings.Cut(o["file"], ":"); storage != "" && storage != at {
			if err := m.moveDisk(ctx, iface, storage); err != nil {
				return fmt.Errorf("disk move fails: %w", err)
			}
		}

		if size > int(has>>30) {
			if err := m.resizeDisk(ctx, iface, size); err != nil {
				return fmt.Errorf("disk resize fails: %w", err)
			}
		}
	}

	return nil
}

// adjustEFIDisk moves the EFI disk to its storage. As published, it always requests the move, and relies on Proxmox'
// refusal if the disk is there already.
func (m machine) adjustEFIDisk(ctx context.Context, plan object, config map[string]string) error {
	efi := child(plan, "efiDisk")
	if efi == nil {
		return nil
	}

	current, exists := config["efidisk0"]
	kind, typed := parseOptions(current, "file")["efitype"]

	switch {
	case !exists:
		return m.setConfig(ctx, form{"efidisk0": encodeEFI(efi, str(efi, "fileFormat"))}, nil)
	case !typed:
		return errEFIType
	case !strings.EqualFold(kind, str(efi, "type")):
		return fmt.Errorf("resizing of efidisks is not supported: set efiDisk.type %s like the template", kind)
	case str(efi, "datastoreId") != "":
		return m.moveDisk(ctx, "efidisk0", str(efi, "datastoreId"))
	}

	return nil
}

// adjustTPM adds a TPM, or moves the template's to its storage.
func (m machine) adjustTPM(ctx context.Context, plan object, config map[string]string) error {
	tpm := child(plan, "tpmState")
	if tpm == nil {
		return nil
	}

	current, exists := config["tpmstate0"]
	storage, _, _ := strings.Cut(parseOptions(current, "file")["file"], ":")

	switch {
	case !exists:
		return m.setConfig(ctx, form{"tpmstate0": encodeTPM(tpm)}, nil)
	case str(tpm, "datastoreId") != "" && str(tpm, "datastoreId") != storage:
		return m.moveDisk(ctx, "tpmstate0", str(tpm, "datastoreId"))
	}

	return nil
}
