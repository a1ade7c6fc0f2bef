package datacentre

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ResizeDisk grows a disk: its size is "40G", or "+10G" for so much more. All that speaks against it, the task finds
// out.
func (d *Datacentre) ResizeDisk(user, hostName string, vmid int, p Config) (string, error) {
	disk := p["disk"]

	return d.powerTask(user, hostName, "resize", vmid, func(ctx context.Context, _ *worker) error {
		v, err := d.needVM(hostName, vmid)
		if err != nil {
			return err
		}

		vol, bytes, err := d.resized(v, disk, p["size"])
		if err != nil {
			return err
		}

		if err := d.commit(ctx, hostName, vmid, d.options.Durations.ResizeDisk); err != nil {
			return err
		}

		vol.SizeBytes = bytes
		v.Config[disk] = parseDrive(disk, v.Config[disk]).props.With("size", FormatSize(bytes)).Format(disk)

		return nil
	})
}

// resized finds a disk that can be grown and its size to be; called with the lock held.
func (d *Datacentre) resized(v *vm, disk, size string) (*Volume, int64, error) {
	value, ok := v.Config[disk]
	if !ok {
		return nil, 0, fmt.Errorf("disk '%s' does not exist", disk)
	}

	dr := parseDrive(disk, value)
	vol := d.findVolume(v.Host, dr.volume())

	switch {
	case dr.volume() == "":
		return nil, 0, fmt.Errorf("unable to parse volume ID '%s'", dr.file())
	case dr.cdrom() || vol == nil:
		return nil, 0, errors.New("you can't resize a cdrom")
	case v.Lock != "":
		return nil, 0, v.locked()
	}

	bytes, err := ParseSize(strings.TrimPrefix(size, "+"))
	if err != nil {
		return nil, 0, err
	}

	if strings.HasPrefix(size, "+") {
		bytes += vol.SizeBytes
	}

	if bytes < vol.SizeBytes {
		return nil, 0, errors.New("shrinking disks is not supported")
	}

	s, err := d.needStorage(v.Host, vol.Storage, "images")
	if err == nil && v.Template && s.Path != "" { // the disks of a template are read-only files there
		return nil, 0, fmt.Errorf("command '/usr/bin/qemu-img resize '--preallocation=%s' -f %s %s %d' failed: exit code 1",
			map[string]string{"qcow2": "metadata"}[vol.Format], vol.Format, s.pathOf(strings.TrimPrefix(vol.ID, s.Name+":")), bytes)
	}

	return vol, bytes, err
}

// MoveDisk moves a disk to another storage.
func (d *Datacentre) MoveDisk(user, hostName string, vmid int, r Config) (string, error) {
	switch _, reassigned := r["target-vmid"]; {
	case r["storage"] != "":
		if err := d.Authorise(user, "/storage/"+r["storage"], "Datastore.AllocateSpace"); err != nil {
			return "", err
		}
	case !reassigned:
		const missing = "both 'storage' and 'target-vmid' missing, either needs to be set"

		return "", ParameterError(map[string]string{"storage": missing, "target-vmid": missing})
	}

	check := func(v *vm, _ bool) error {
		_, err := d.planMove(v, r)

		return err
	}

	return d.vmTask(user, hostName, "qmmove", vmid, check, func(ctx context.Context, w *worker, v *vm) error {
		p, err := d.planMove(v, r)
		if err == nil {
			err = d.writable(configFile(hostName, vmid))
		}

		if err != nil {
			return err
		}

		if err := d.move(ctx, w, v, p, r); err != nil {
			return failed("storage migration failed: ", err)
		}

		w.log("%s: moved to '%s'", r["disk"], r["storage"])

		return nil
	})
}

// movePlan is a drive that moves, with its volume, to a storage.
type movePlan struct {
	drive
	volume *Volume
	to     *Storage
}

func (d *Datacentre) planMove(v *vm, r Config) (p movePlan, err error) {
	p.drive = parseDrive(r["disk"], v.Config[r["disk"]])
	p.volume = d.findVolume(v.Host, p.drive.volume())

	switch {
	case v.Lock != "":
		return p, v.locked()
	case v.Config[r["disk"]] == "":
		return p, Refuse("disk '%s' does not exist", r["disk"])
	case p.cdrom():
		return p, Refuse("you can't move a cdrom")
	case p.volume == nil:
		return p, Refuse("disk '%s' has no associated volume", r["disk"])
	case p.volume.Storage == r["storage"] && cmp.Or(r["format"], p.volume.Format) == p.volume.Format:
		return p, Refuse("you can't move to the same storage with same format")
	}

	p.to, err = d.needStorage(v.Host, r["storage"], "images")

	return p, err
}

func (d *Datacentre) move(ctx context.Context, w *worker, v *vm, p movePlan, r Config) error {
	from, _ := d.findStorage(v.Host, p.volume.Storage) // which has the volume
	n := newDisk{vmid: v.ID, format: r["format"], size: p.volume.SizeBytes, img: p.volume.Image, raw: p.volume.Raw}

	drive, err := d.makeVolume(ctx, w, n, from, p.to, p.props)
	if err != nil {
		return err
	}

	v.Config[p.key] = drive.Format(p.key)

	if r.Bool("delete") {
		d.free(p.volume)
	} else {
		v.Config.addUnused(p.volume.ID)
	}

	return nil
}

// addUnused keeps a detached disk in the configuration.
func (c Config) addUnused(id string) {
	for n := range 256 {
		k := "unused" + strconv.Itoa(n)
		if _, taken := c[k]; !taken {
			c[k] = id

			return
		}
	}
}
