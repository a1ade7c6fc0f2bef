package proxmoxve

import "context"

// cdrom keeps the published slip: a drive that is neither wanted nor has a medium is deleted and set in one request,
// which Proxmox refuses.
func (c *change) cdrom() {
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

// cloudInit changes what the guest gets; another drive or storage for it needs the VM switched off.
func (c *change) cloudInit(ctx context.Context) error {
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

	if err := c.m.freeDrives(ctx, drive, existing); err != nil {
		return err
	}

	c.stopped = true
	c.form[drive] = encodeMedia(str(next, "datastoreId") + ":cloudinit")

	return nil
}
