package proxmoxve

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// cloneVM copies a template and makes it what the program states. From the end of the copy on there is something to
// keep.
func cloneVM(ctx context.Context, m machine, plan object) (bool, error) {
	if err := cloneSource(ctx, m, plan); err != nil {
		return false, err
	}

	if err := m.unlocked(ctx); err != nil {
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

	if err := m.set(ctx, f, del); err != nil {
		return true, err
	}

	after, err := m.config(ctx)
	if err != nil {
		return true, err
	}

	if err := m.fitDisks(ctx, plan, after); err != nil {
		return true, err
	}

	return true, m.fitFirmware(ctx, plan, after)
}

// kept are what a clone has from its template, or got with the request to clone.
var kept = []string{"bootOrders", "description", "machine", "name"}

// cloneForm is the one large change after the copy. A clone also keeps the template's settings, but not its blocks,
// where the program states the published default, or nothing.
func cloneForm(ctx context.Context, m machine, plan object, before map[string]string) (form, []string, error) {
	f, del := form{}, []string{}

	for name, a := range virtualMachine() {
		if plan[name] == nil || !a.configured() || slices.Contains(kept, name) ||
			a.kind != block && name != "onBoot" && a.same(plan[name], a.fallback) {
			continue
		}

		absent := a.encode(f, plan[name])
		if name == "networkDevices" || name == "serialDevices" {
			del = append(del, absent...)
		}
	}

	f.clean()

	if cdrom := child(plan, "cdrom"); cdrom != nil {
		// Enabled or not: the published provider forgets here that the drive is not wanted.
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

	if err := m.freeDrives(ctx, drive, existing); err != nil {
		return nil, nil, err
	}

	f[drive] = encodeMedia(str(initialization, "datastoreId") + ":cloudinit")

	return f, del, nil
}

// freeDrives removes the drive that cloud-init is to have, and the one it had.
func (m machine) freeDrives(ctx context.Context, drive, existing string) error {
	del := []string{drive}
	if existing != "" && existing != drive {
		del = append(del, existing)
	}

	return m.set(ctx, form{}, del)
}

// fitDisks gives the clone's disks their storage and size, and adds those the template did not have.
func (m machine) fitDisks(ctx context.Context, plan object, config map[string]string) error {
	for _, d := range children(plan, "disks") {
		iface, storage, size := str(d, "interface"), str(d, "datastoreId"), num(d, "size")

		current, exists := config[iface]
		if !exists {
			if err := m.set(ctx, form{iface: encodeNewDisk(d)}, nil); err != nil {
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
			if err := m.move(ctx, iface, storage); err != nil {
				return fmt.Errorf("disk move fails: %w", err)
			}
		}

		if size > int(has>>30) {
			if err := m.resize(ctx, iface, size); err != nil {
				return fmt.Errorf("disk resize fails: %w", err)
			}
		}
	}

	return nil
}

// fitFirmware gives the EFI disk its storage. The published provider always asks for the move, and counts
// on Proxmox' refusal where they are there already.
func (m machine) fitFirmware(ctx context.Context, plan object, config map[string]string) error {
	efi := child(plan, "efiDisk")
	if efi == nil {
		return nil
	}

	current, exists := config["efidisk0"]
	kind, typed := parseOptions(current, "file")["efitype"]

	switch {
	case !exists:
		return m.set(ctx, form{"efidisk0": encodeEFI(efi, str(efi, "fileFormat"))}, nil)
	case !typed:
		return errEFIType
	case !strings.EqualFold(kind, str(efi, "type")):
		return fmt.Errorf("resizing of efidisks is not supported: set efiDisk.type %s like the template", kind)
	case str(efi, "datastoreId") != "":
		return m.move(ctx, "efidisk0", str(efi, "datastoreId"))
	}

	return nil
}
