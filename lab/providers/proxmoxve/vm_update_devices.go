package proxmoxve

import "context"

// setCDROM has a bug of the published provider: it deletes and sets a disabled drive without medium in one request,
// which Proxmox refuses.
func (c *vmUpdate) setCDROM() {
	if !c.changed("cdrom") {
		return
	}

	cdrom := child(c.plan, "cdrom")
	if cdrom == nil {
		cdrom = c.table["cdrom"].fields.defaults()
	}

	iface := str(cdrom, "interface")

	if before := child(c.state, "cdrom"); before != nil {
		old := str(before, "interface")
		if old == "" {
			old = "ide3"
		}

		if old != iface {
			c.del = append(c.del, old)
		}
	}

	if !flag(cdrom, "enabled") && str(cdrom, "fileId") == "" {
		c.del = append(c.del, iface)
	}

	c.form[iface] = encodeMedia(cdromVolume(cdrom))
}

// setCloudInit changes cloud-init's settings; another drive or storage requires the VM to be off.
func (c *vmUpdate) setCloudInit(ctx context.Context) error {
	next := child(c.plan, "initialization")
	if !c.changed("initialization") || next == nil {
		return nil
	}

	existing := cloudInitDrive(c.config, c.m.id, "")
	drive := str(next, "interface")

	if drive == "" {
		if drive = existing; drive == "" {
			drive = "ide2"
		}
	}

	stays := existing == drive && str(child(c.state, "initialization"), "datastoreId") == str(next, "datastoreId")
	if stays {
		c.form[drive] = encodeMedia(parseOptions(c.config[existing], "file")["file"])

		return nil
	}

	if err := c.m.shutdown(ctx, c.plan); err != nil {
		return err
	}

	if err := c.m.deleteDrives(ctx, drive, existing); err != nil {
		return err
	}

	c.stopped = true
	c.form[drive] = encodeMedia(str(next, "datastoreId") + ":cloudinit")

	return nil
}
