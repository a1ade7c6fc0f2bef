package proxmoxve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// setDisks changes the options of existing disks and adds new ones; resizeDisks moves and resizes them later.
func (c *vmUpdate) setDisks() {
	if !c.changed("disks") {
		return
	}

	for _, d := range children(c.plan, "disks") {
		iface := str(d, "interface")

		current, exists := c.config[iface]
		if !exists {
			c.form[iface] = encodeNewDisk(d)

			continue
		}

		o := parseOptions(current, "file")
		kept := options{"file=" + o["file"]}
		kept.addNonEmpty("format", o["format"])
		kept.addNonEmpty("media", o["media"])

		// Compared with Proxmox' configuration, not with the state: a clone's disk has no aio unless its template's has.
		if aio, ok := o["aio"]; !ok || aio != str(d, "aio") {
			c.reboot = true
		}

		if size, err := parseSize(o["size"]); err == nil && size > 0 {
			kept.add("size", strconv.FormatInt(size, 10))
		}

		c.form[iface] = append(kept, diskOptions(d)...).String()
	}
}

// setFirmwareDisks creates a new EFI disk or TPM on another storage, as published: the content of the old one is lost.
func (c *vmUpdate) setFirmwareDisks() {
	if efi := child(c.plan, "efiDisk"); efi != nil && c.changed("efiDisk") {
		c.form["efidisk0"] = encodeEFI(efi, str(efi, "fileFormat"))
	}

	if tpm := child(c.plan, "tpmState"); tpm != nil && c.changed("tpmState") {
		c.form["tpmstate0"] = encodeTPM(tpm)
	}
}

// diskSteps are the disks that an update moves and grows.
type diskSteps struct{ moves, grows []object }

// resizeDisks moves disks while the VM is off, and grows them while it may run.
func (c *vmUpdate) resizeDisks(ctx context.Context) (bool, error) {
	steps, err := c.diskSteps()
	if err != nil {
		return false, err
	}

	off := len(steps.moves) > 0
	if off && !flag(c.plan, "template") {
		if err := c.m.shutdown(ctx, c.plan); err != nil {
			return false, err
		}
	}

	for _, d := range steps.moves {
		if err := c.m.moveDisk(ctx, str(d, "interface"), str(d, "datastoreId")); err != nil {
			return false, err
		}
	}

	for _, d := range steps.grows {
		if err := c.m.resizeDisk(ctx, str(d, "interface"), num(d, "size")); err != nil {
			return false, err
		}
	}

	if !off || !flag(c.plan, "started") || flag(c.plan, "template") {
		return false, nil
	}

	return true, c.m.start(ctx, c.plan)
}

// diskSteps returns an error for unsupported changes before any is made.
func (c *vmUpdate) diskSteps() (diskSteps, error) {
	var steps diskSteps

	// As published, it compares references to the sizes, not the sizes, and only if disks change as well.
	if c.changed("disks") && c.changed("efiDisk") && child(c.state, "efiDisk") != nil && child(c.plan, "efiDisk") != nil {
		return steps, errors.New("resizing of efidisk is not supported.") //nolint:revive,staticcheck // published words
	}

	wanted := children(c.plan, "disks")

	for _, old := range children(c.state, "disks") {
		iface := str(old, "interface")

		i := slices.IndexFunc(wanted, func(d object) bool { return str(d, "interface") == iface })
		if i < 0 {
			return steps, fmt.Errorf("deletion of disks not supported. Please delete disk by hand. Old interface was %q", iface)
		}

		d := wanted[i]
		at := str(old, "datastoreId") + ":" + str(old, "pathInDatastore")
		own := ownedBy(str(old, "pathInDatastore"), c.m.id)

		if str(old, "datastoreId") != str(d, "datastoreId") {
			if !own {
				return steps, fmt.Errorf(
					"cannot move %s to datastore %s in VM %d configuration, it is not owned by this VM", at, str(d, "datastoreId"),
					c.m.id,
				)
			}

			steps.moves = append(steps.moves, d)
		}

		switch before, after := num(old, "size"), num(d, "size"); {
		case before > after:
			//nolint:revive,staticcheck // published words
			return steps, fmt.Errorf("Cannot shrink %s in VM %d, it is not supported!", at, c.m.id)
		case before < after && !own:
			return steps, fmt.Errorf("cannot resize %s in VM %d, it is not owned by this VM", at, c.m.id)
		case before < after:
			steps.grows = append(steps.grows, d)
		}
	}

	return steps, nil
}

// ownedBy reports whether a volume is the VM's, by its name on block or directory storages.
func ownedBy(volume string, id int) bool {
	return strings.HasPrefix(volume, fmt.Sprintf("vm-%d-", id)) ||
		strings.HasPrefix(volume, fmt.Sprintf("%d/vm-%d-", id, id))
}
