package datacentre

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ResizeDisk grows a disk to a size such as "40G", or by an increment such as "+10G". The task checks the request.
func (d *Datacentre) ResizeDisk(user, hostName string, vmid int, p Config) (string, error) {
	disk := p["disk"]

	return d.powerTask(user, hostName, "resize", vmid, func(ctx context.Context, _ *worker) error {
		v, err := d.lookupVM(hostName, vmid)
		if err != nil {
			return err
		}

		vol, bytes, err := d.resizeTarget(v, disk, p["size"])
		if err != nil {
			return err
		}

		if err := d.commitConfig(ctx, hostName, vmid, d.options.Durations.ResizeDisk); err != nil {
			return err
		}

		vol.SizeBytes = bytes
		v.Config[disk] = parseDrive(disk, v.Config[disk]).props.With("size", FormatSize(bytes)).Format(disk)

		return nil
	})
}

// resizeTarget returns the disk's volume and its new size; it requires the lock.
func (d *Datacentre) resizeTarget(v *vm, disk, size string) (*Volume, int64, error) {
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
		return nil, 0, v.checkLock()
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

	s, err := d.lookupStorage(v.Host, vol.Storage, "images")
	if err == nil && v.Template && s.Path != "" { // a template's disks are read-only files
		return nil, 0, fmt.Errorf("command '/usr/bin/qemu-img resize '--preallocation=%s' -f %s %s %d' failed: exit code 1",
			map[string]string{"qcow2": "metadata"}[vol.Format], vol.Format, s.pathOf(strings.TrimPrefix(vol.ID, s.Name+":")), bytes)
	}

	return vol, bytes, err
}

// MoveDisk moves a disk to another storage.
func (d *Datacentre) MoveDisk(user, hostName string, vmid int, r Config) (string, error) {
	switch _, reassign := r["target-vmid"]; {
	case r["storage"] != "":
		if err := d.Authorise(user, "/storage/"+r["storage"], "Datastore.AllocateSpace"); err != nil {
			return "", err
		}
	case !reassign:
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
			err = d.checkWritable(configFile(hostName, vmid))
		}

		if err != nil {
			return err
		}

		if err := d.moveDisk(ctx, w, v, p, r); err != nil {
			return wrapFailure("storage migration failed: ", err)
		}

		w.log("%s: moved to '%s'", r["disk"], r["storage"])

		return nil
	})
}

// movePlan is a checked move of a drive's volume to a storage.
type movePlan struct {
	drive
	volume *Volume
	to     *Storage
}

func (d *Datacentre) planMove(v *vm, r Config) (plan movePlan, err error) {
	plan.drive = parseDrive(r["disk"], v.Config[r["disk"]])
	plan.volume = d.findVolume(v.Host, plan.drive.volume())

	switch {
	case v.Lock != "":
		return plan, v.checkLock()
	case v.Config[r["disk"]] == "":
		return plan, Refuse("disk '%s' does not exist", r["disk"])
	case plan.cdrom():
		return plan, Refuse("you can't move a cdrom")
	case plan.volume == nil:
		return plan, Refuse("disk '%s' has no associated volume", r["disk"])
	case plan.volume.Storage == r["storage"] && cmp.Or(r["format"], plan.volume.Format) == plan.volume.Format:
		return plan, Refuse("you can't move to the same storage with same format")
	}

	plan.to, err = d.lookupStorage(v.Host, r["storage"], "images")

	return plan, err
}

func (d *Datacentre) moveDisk(ctx context.Context, w *worker, v *vm, p movePlan, r Config) error {
	from, _ := d.findStorage(v.Host, p.volume.Storage) // it exists: it has the volume
	n := diskSpec{vmid: v.ID, format: r["format"], size: p.volume.SizeBytes, img: p.volume.Image, raw: p.volume.Raw}

	drive, err := d.createDisk(ctx, w, n, from, p.to, p.props)
	if err != nil {
		return err
	}

	v.Config[p.key] = drive.Format(p.key)

	if r.Bool("delete") {
		d.deleteVolumes(p.volume)
	} else {
		v.Config.addUnused(p.volume.ID)
	}

	return nil
}

// addUnused adds a detached disk to the configuration as unused.
func (c Config) addUnused(id string) {
	for n := range 256 {
		k := "unused" + strconv.Itoa(n)
		if _, taken := c[k]; !taken {
			c[k] = id

			return
		}
	}
}
