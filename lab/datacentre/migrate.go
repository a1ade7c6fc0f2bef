package datacentre

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// MigrateRequest says where a VM goes.
type MigrateRequest struct {
	Target string
	// Online lets a running VM go, WithLocalDisks its disks on storages that the hosts do not share.
	Online, WithLocalDisks bool
}

// errMigration is how a migration ends whose log says why.
var errMigration = errors.New("migration aborted")

// Migrate moves a VM to another host: a running one as it runs, disks on storages of the host's own with it.
func (d *Datacentre) Migrate(user, hostName string, vmid int, r MigrateRequest) (string, error) {
	if _, ok := d.Host(r.Target); !ok {
		return "", refuse("no such cluster node '%s'", r.Target)
	}

	if err := d.checkMigration(hostName, vmid, r); err != nil {
		return "", err
	}

	return d.spawn(user, hostName, "qmigrate", strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		unlock, err := d.lockVM(ctx, vmid)
		if err != nil {
			return err
		}
		defer unlock()

		if err := d.copyDisks(ctx, hostName, vmid, r); err != nil {
			return err
		}

		if err := d.migrate(hostName, vmid, r); err != nil {
			w.log("ERROR: %s", err)

			return errMigration
		}

		w.log("migration finished successfully")

		return nil
	})
}

// copyDisks lets the time pass in which the disks that go along are copied. What keeps the VM where it is, is migrate's
// to say.
func (d *Datacentre) copyDisks(ctx context.Context, hostName string, vmid int, r MigrateRequest) error {
	type disk struct {
		bytes    int64
		from, to *storage
	}

	var disks []disk

	d.mu.Lock()
	list, _ := d.travelling(hostName, vmid, r)

	for _, vol := range list {
		from, err := d.needStorage(hostName, vol.Storage, "")
		if err != nil {
			continue
		}

		if to, err := d.needStorage(r.Target, vol.Storage, ""); err == nil {
			disks = append(disks, disk{vol.UsedBytes, from, to})
		}
	}
	d.mu.Unlock()

	for _, c := range disks {
		if err := d.copyBytes(ctx, c.bytes, c.from, c.to); err != nil {
			return err
		}
	}

	return d.sleep(ctx, d.options.Durations.ConfigVM)
}

// checkMigration is what PVE refuses before there is a task.
func (d *Datacentre) checkMigration(hostName string, vmid int, r MigrateRequest) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return err
	}

	if r.Target == hostName {
		return wrongParameter("target", "target is local node.")
	}

	if err := d.needQuorum(); err != nil {
		return err
	}

	if d.host(r.Target) == nil {
		return refuse("no such cluster node '%s'", r.Target)
	}

	if err := v.locked(); err != nil {
		return err
	}

	if v.Running && !r.Online {
		return wrongParameter("online", "can't migrate running VM without --online")
	}

	for _, dr := range v.Config.drives() {
		if vol := d.findVolume(hostName, dr.volume()); vol != nil && !dr.cdrom() {
			if _, err := d.needStorage(r.Target, vol.Storage, "images"); err != nil {
				return err
			}
		}
	}

	return nil
}

// travelling are the volumes that go with the VM, or what keeps it on its host; called with the lock held.
func (d *Datacentre) travelling(hostName string, vmid int, r MigrateRequest) ([]*volume, error) {
	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return nil, err
	}

	if local := slices.DeleteFunc(slices.Sorted(maps.Keys(v.Config)), func(key string) bool {
		return !isIndexed(key, "hostpci") && (!isIndexed(key, "usb") || strings.Contains(v.Config[key], "spice"))
	}); len(local) > 0 {
		return nil, fmt.Errorf("can't migrate VM which uses local devices: %s", strings.Join(local, ", "))
	}

	var list []*volume

	for _, dr := range v.Config.drives() {
		vol := d.findVolume(hostName, dr.volume())
		if vol == nil || vol.Host == "" {
			continue
		}

		switch {
		case dr.cdrom() && !dr.cloudInit():
			return nil, fmt.Errorf("can't migrate local disk '%s': local cdrom image", vol.ID)
		case !r.WithLocalDisks && v.Running && !dr.cloudInit():
			return nil, fmt.Errorf(
				"can't migrate local disk '%s': can't live migrate attached local disks without with-local-disks option", vol.ID,
			)
		case vol.Base != "" && strings.Contains(vol.ID, "base-"): // LVM-thin alone names no base, and copies the whole disk
			return nil, fmt.Errorf("can't migrate '%s' as it's a clone of '%s'", vol.ID, vol.Base)
		}

		list = append(list, vol)
	}

	return list, nil
}

// migrate hands the VM over. Its volumes keep their names: a VMID is the cluster's, so they are free on the target
// unless something was left there.
func (d *Datacentre) migrate(hostName string, vmid int, r MigrateRequest) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	list, err := d.travelling(hostName, vmid, r)
	if err != nil {
		return err
	}

	room := map[*storage]int64{}

	for _, vol := range list {
		s, err := d.needStorage(r.Target, vol.Storage, "images")
		if err != nil {
			return err
		}

		if d.state.Volumes[volumeKey(r.Target, vol.ID)] != nil {
			return fmt.Errorf(
				"storage migration for '%s' to storage '%s' failed - volume already exists on '%s'", vol.ID, vol.Storage, r.Target,
			)
		}

		if room[s] += vol.UsedBytes; d.room(s, room[s]) != nil {
			return fmt.Errorf("storage migration for '%s' to storage '%s' failed - %w", vol.ID, vol.Storage, d.room(s, room[s]))
		}
	}

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return err
	}

	for _, vol := range list {
		delete(d.state.Volumes, vol.key())
		vol.Host, vol.Base = r.Target, ""
		d.state.Volumes[vol.key()] = vol
	}

	if v.Host = r.Target; v.Hardware != nil {
		v.Hardware.Host = r.Target
	}

	d.changed()

	return nil
}
