package datacentre

import (
	"context"
	"errors"
	"fmt"
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
	if d.host(r.Target) == nil {
		return "", Refuse("no such cluster node '%s'", r.Target)
	}

	check := func(v *vm, inTask bool) error {
		if inTask {
			return nil
		}

		return d.checkMigration(v, r)
	}

	return d.vmTask(user, hostName, "qmigrate", vmid, check, func(ctx context.Context, w *worker, v *vm) error {
		if err := d.copyDisks(ctx, v, r); err != nil {
			return err
		}

		if err := d.migrate(v, r); err != nil {
			w.log("ERROR: %s", err)

			return errMigration
		}

		w.log("migration finished successfully")

		return nil
	})
}

// copyDisks lets the time pass in which the disks that go along are copied. What keeps the VM where it is, is migrate's
// to say.
func (d *Datacentre) copyDisks(ctx context.Context, v *vm, r MigrateRequest) error {
	d.mu.Lock()
	list, _ := d.travelling(v, r)
	d.mu.Unlock()

	for _, vol := range list {
		from, _ := d.needStorage(v.Host, vol.Storage, "")

		to, err := d.needStorage(r.Target, vol.Storage, "")
		if err != nil { // as above
			continue
		}

		if err := d.copyBytes(ctx, vol.UsedBytes, from, to); err != nil {
			return err
		}
	}

	return d.sleep(ctx, d.options.Durations.ConfigVM)
}

// checkMigration is what PVE refuses before there is a task.
func (d *Datacentre) checkMigration(v *vm, r MigrateRequest) error {
	if r.Target == v.Host {
		return WrongParameter("target", "target is local node.")
	}

	if err := d.needQuorum(); err != nil {
		return err
	}

	if err := v.locked(); err != nil {
		return err
	}

	if v.Running && !r.Online {
		return WrongParameter("online", "can't migrate running VM without --online")
	}

	for _, dr := range v.Config.drives() {
		if vol := d.findVolume(v.Host, dr.volume()); vol != nil && !dr.cdrom() {
			if _, err := d.needStorage(r.Target, vol.Storage, "images"); err != nil {
				return err
			}
		}
	}

	return nil
}

// travelling are the volumes that go with the VM, or what keeps it on its host; called with the lock held.
func (d *Datacentre) travelling(v *vm, r MigrateRequest) ([]*volume, error) {
	if local := v.Config.numbered("hostpci"); len(local) > 0 {
		return nil, fmt.Errorf("can't migrate VM which uses local devices: %s", strings.Join(local, ", "))
	}

	var list []*volume

	for _, dr := range v.Config.drives() {
		vol := d.findVolume(v.Host, dr.volume())
		if vol == nil {
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
func (d *Datacentre) migrate(v *vm, r MigrateRequest) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	list, err := d.travelling(v, r)
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
