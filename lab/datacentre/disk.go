package datacentre

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ResizeDisk grows a disk: size is "40G", or "+10G" for so much more.
func (d *Datacentre) ResizeDisk(user, hostName string, vmid int, disk, size string) (string, error) {
	if !IsDrive(disk) {
		return "", wrongParameter("disk", "value '%s' does not have a value in the enumeration of disks", disk)
	}

	if _, err := ParseSize(strings.TrimPrefix(size, "+")); err != nil {
		return "", wrongParameter("size", "value does not match the regex pattern")
	}

	return d.powerTask(user, hostName, "resize", vmid, func(ctx context.Context, _ *worker) error {
		if err := d.checkResize(hostName, vmid, disk, size); err != nil {
			return err
		}

		if err := d.sleep(ctx, d.options.Durations.ResizeDisk); err != nil {
			return err
		}

		if err := d.writable(configFile(hostName, vmid)); err != nil {
			return err
		}

		d.mu.Lock()
		defer d.mu.Unlock()

		v, vol, bytes, err := d.resized(hostName, vmid, disk, size)
		if err != nil {
			return err
		}

		if vol.UsedBytes == vol.SizeBytes {
			vol.UsedBytes = bytes
		}

		vol.SizeBytes = bytes
		v.Config[disk] = parseDrive(disk, v.Config[disk]).props.With("size", FormatSize(bytes)).Format("file")

		d.changed()

		return nil
	})
}

func (d *Datacentre) checkResize(hostName string, vmid int, disk, size string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	v, vol, bytes, err := d.resized(hostName, vmid, disk, size)
	if err != nil {
		return err
	}

	if err := v.locked(); err != nil {
		return err
	}

	if bytes < vol.SizeBytes {
		return errors.New("shrinking disks is not supported")
	}

	s, err := d.needStorage(hostName, vol.Storage, "images")

	switch {
	case err == nil && v.Template && s.Path != "": // the disks of a template are read-only files there
		return fmt.Errorf("command '/usr/bin/qemu-img resize '--preallocation=%s' -f %s %s %d' failed: exit code 1",
			map[string]string{"qcow2": "metadata"}[vol.Format], vol.Format, s.pathOf(strings.TrimPrefix(vol.ID, s.Name+":")), bytes)
	case err != nil || vol.UsedBytes < vol.SizeBytes:
		return err
	}

	return d.room(s, bytes-vol.SizeBytes)
}

// resized finds the disk and its size to be; called with the lock held.
func (d *Datacentre) resized(hostName string, vmid int, disk, size string) (*vm, *volume, int64, error) {
	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return nil, nil, 0, err
	}

	value, ok := v.Config[disk]
	if !ok {
		return nil, nil, 0, fmt.Errorf("disk '%s' does not exist", disk)
	}

	dr := parseDrive(disk, value)
	vol := d.findVolume(hostName, dr.volume())

	switch {
	case dr.volume() == "":
		return nil, nil, 0, fmt.Errorf("unable to parse volume ID '%s'", dr.file())
	case dr.cdrom() || vol == nil:
		return nil, nil, 0, errors.New("you can't resize a cdrom")
	}

	bytes, err := ParseSize(strings.TrimPrefix(size, "+"))
	if strings.HasPrefix(size, "+") {
		bytes += vol.SizeBytes
	}

	return v, vol, bytes, err
}

// MoveDisk moves a disk to another storage.
func (d *Datacentre) MoveDisk(user, hostName string, vmid int, r MoveRequest) (string, error) {
	if r.Storage != "" {
		if err := d.Authorise(user, "/storage/"+r.Storage, "Datastore.AllocateSpace"); err != nil {
			return "", err
		}
	}

	if err := d.checkMove(hostName, vmid, r); err != nil {
		return "", err
	}

	return d.spawn(user, hostName, "qmmove", strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		unlock, err := d.lockVM(ctx, vmid)
		if err != nil {
			return err
		}
		defer unlock()

		if err := d.writable(configFile(hostName, vmid)); err != nil {
			return err
		}

		if err := d.move(ctx, w, hostName, vmid, r); err != nil {
			if errors.Is(err, errInterrupted) {
				return err
			}

			return fmt.Errorf("storage migration failed: %w", err)
		}

		w.log("%s: moved to '%s'", r.Disk, r.Storage)

		return nil
	})
}

func (d *Datacentre) checkMove(hostName string, vmid int, r MoveRequest) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return err
	}

	if err := v.locked(); err != nil {
		return err
	}

	value, ok := v.Config[r.Disk]
	if !ok {
		return refuse("disk '%s' does not exist", r.Disk)
	}

	dr := parseDrive(r.Disk, value)
	vol := d.findVolume(hostName, dr.volume())

	switch {
	case dr.cdrom():
		return refuse("you can't move a cdrom")
	case vol == nil:
		return refuse("disk '%s' has no associated volume", r.Disk)
	case vol.Storage == r.Storage && (r.Format == "" || r.Format == vol.Format):
		return refuse("you can't move to the same storage with same format")
	}

	_, err = d.needStorage(hostName, r.Storage, "images")

	return err
}

func (d *Datacentre) move(ctx context.Context, w *worker, hostName string, vmid int, r MoveRequest) error {
	if err := d.checkMove(hostName, vmid, r); err != nil {
		return err
	}

	d.mu.Lock()
	v, err := d.needVM(hostName, vmid)

	var (
		dr       drive
		old      *volume
		from, to *storage
	)

	if err == nil {
		dr = parseDrive(r.Disk, v.Config[r.Disk])
		old = d.findVolume(hostName, dr.volume())
		from, _ = d.needStorage(hostName, old.Storage, "") // checked above
		to, err = d.needStorage(hostName, r.Storage, "images")
	}
	d.mu.Unlock()

	if err != nil {
		return err
	}

	n := newDisk{vmid: vmid, format: r.Format, size: old.SizeBytes, img: old.Image, raw: old.Raw}

	moved, err := d.allocate(ctx, to, n)
	if err != nil {
		return err
	}

	if err := d.write(ctx, w, moved, n, from, to); err != nil {
		d.undo([]*volume{moved})

		return err
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	v.Config[r.Disk] = dr.props.With("file", moved.ID).With("format", "").With(
		"size", FormatSize(moved.SizeBytes),
	).Format("file")

	if r.Delete {
		d.free(old)
	} else {
		v.Config.addUnused(old.ID)
	}

	d.changed()

	return nil
}

// addUnused keeps a detached disk in the configuration.
func (c Config) addUnused(id string) string {
	for n := range 256 {
		k := "unused" + strconv.Itoa(n)
		if _, taken := c[k]; !taken {
			c[k] = id

			return k
		}
	}

	return ""
}

// ImportDisk imports an image file (an absolute path of the host, or a volume) as an unused disk, as `qm importdisk`
// does.
func (d *Datacentre) ImportDisk(user, hostName string, vmid int, source, storageName string) (string, error) {
	d.mu.Lock()

	v, err := d.needVM(hostName, vmid)
	if err == nil {
		err = v.locked()
	}

	if err == nil {
		_, err = d.needStorage(hostName, storageName, "images")
	}

	if err == nil {
		err = d.checkSource(user, hostName, "source", source, new(error))
	}
	d.mu.Unlock()

	if err != nil {
		return "", err
	}

	return d.spawn(user, hostName, "importdisk", strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		unlock, err := d.lockVM(ctx, vmid)
		if err != nil {
			return err
		}
		defer unlock()

		return d.importDisk(ctx, w, hostName, vmid, source, storageName)
	})
}

func (d *Datacentre) importDisk(
	ctx context.Context, w *worker, hostName string, vmid int, source, storageName string,
) (err error) {
	s, err := d.needStorage(hostName, storageName, "images")
	if err != nil {
		return err
	}

	var made []*volume

	defer func() {
		if err != nil {
			d.undo(made)
		}
	}()

	p := drivePlan{drive: parseDrive("unused", "file="+storageName+":0"), storage: s, source: source}

	value, err := d.fill(ctx, w, hostName, vmid, p, &made)
	if err != nil {
		return err
	}

	d.mu.Lock()
	v, err := d.needVM(hostName, vmid)

	key := ""
	if err == nil {
		key = v.Config.addUnused(parseDrive("unused", value).file())

		d.changed()
	}
	d.mu.Unlock()

	if err == nil {
		w.log("unused disk '%s' imported as '%s'", key, parseDrive("unused", value).file())
	}

	return err
}
