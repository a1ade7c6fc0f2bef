package datacentre

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errMigration ends a migration whose log has the reason.
var errMigration = errors.New("migration aborted")

// Migrate moves a VM to another host: a running one with online, its local disks with with-local-disks.
func (d *Datacentre) Migrate(user, hostName string, vmid int, r Config) (string, error) {
	if to := r["targetstorage"]; to != "" && to != "1" {
		return "", WrongParameter(
			"targetstorage", "the lab moves disks to storages of the same name only: leave it out, or set 1",
		)
	}

	if d.host(r["target"]) == nil {
		return "", Refuse("no such cluster node '%s'", r["target"])
	}

	check := func(v *vm, inTask bool) error {
		if inTask {
			return nil
		}

		return d.checkMigration(v, r)
	}

	return d.vmTask(user, hostName, "qmigrate", vmid, check, func(ctx context.Context, w *worker, v *vm) error {
		replicated, err := d.moveReplicated(v, r["target"])
		if err != nil {
			w.log("ERROR: %s", err)

			return errMigration
		}

		list, err := d.volumesToMigrate(v, r, replicated)
		if err != nil {
			w.log("ERROR: %s", err)

			return errMigration
		}

		for _, vol := range list {
			from, _ := d.lookupStorage(v.Host, vol.Storage, "") // both were checked
			to, _ := d.lookupStorage(r["target"], vol.Storage, "")

			if err := d.copyBytes(ctx, vol.UsedBytes, from, to); err != nil {
				return err
			}
		}

		if err := d.sleep(ctx, d.options.Durations.ConfigVM); err != nil {
			return err
		}

		// Volumes keep their names: VMIDs are the cluster's, so only leftovers could conflict on the target.
		for _, vol := range list {
			d.deleteVolumes(vol)
			vol.Host, vol.Base = r["target"], ""
			d.state.Volumes[vol.key()] = vol
		}

		if v.Host = r["target"]; v.Hardware != nil {
			v.Hardware.Host = r["target"]
		}

		d.switchStolen(v)

		w.log("migration finished successfully")

		return nil
	})
}

// checkMigration returns what PVE refuses before it starts a task.
func (d *Datacentre) checkMigration(v *vm, r Config) error {
	if r["target"] == v.Host {
		return WrongParameter("target", "target is local node.")
	}

	if err := cmp.Or(d.checkQuorum(), v.checkLock()); err != nil {
		return err
	}

	if v.Running && !r.Bool("online") {
		return WrongParameter("online", "can't migrate running VM without --online")
	}

	if err := d.checkReplicatedMove(v, r["target"], r.Bool("force")); err != nil {
		return err
	}

	for _, dr := range v.Config.drives() {
		if vol := d.findVolume(v.Host, dr.volume()); vol != nil && !dr.cdrom() {
			if _, err := d.lookupStorage(r["target"], vol.Storage, "images"); err != nil {
				return err
			}
		}
	}

	return nil
}

// volumesToMigrate returns the volumes that move with the VM, or why the VM cannot move.
// Replicated volumes are on the target already.
func (d *Datacentre) volumesToMigrate(v *vm, r Config, replicated bool) ([]*Volume, error) {
	if err := d.checkLocalDevices(v, r["target"]); err != nil {
		return nil, err
	}

	var there []*Volume
	if replicated {
		there, _ = d.replicatedVolumes(v) // were copied
	}

	var list []*Volume

	required := map[string]int64{}

	for _, dr := range v.Config.drives() {
		vol := d.findVolume(v.Host, dr.volume())
		if vol == nil || vol.Host == "" || slices.Contains(there, vol) { // none, or one that the target has as well
			continue
		}

		to, err := d.lookupStorage(r["target"], vol.Storage, "images")

		switch {
		case dr.cdrom() && !dr.cloudInit():
			return nil, fmt.Errorf("can't migrate local disk '%s': local cdrom image", vol.ID)
		case vol.VMID != v.ID:
			return nil, fmt.Errorf("can't migrate local disk '%s': owned by other VM (owner = VM %d)", vol.ID, vol.VMID)
		case !r.Bool("with-local-disks") && v.Running && !dr.cloudInit():
			return nil, fmt.Errorf(
				"can't migrate local disk '%s': can't live migrate attached local disks without with-local-disks option", vol.ID,
			)
		case vol.Base != "" && strings.Contains(vol.ID, "base-"): // LVM-thin names no base, and copies the whole disk
			return nil, fmt.Errorf("can't migrate '%s' as it's a clone of '%s'", vol.ID, vol.Base)
		case err != nil:
			return nil, err
		case d.state.Volumes[volumeKey(r["target"], vol.ID)] != nil:
			err = fmt.Errorf("volume already exists on '%s'", r["target"])
		default:
			required[to.Name] += vol.UsedBytes
			err = d.checkSpace(to, required[to.Name])
		}

		if err != nil {
			return nil, fmt.Errorf("storage migration for '%s' to storage '%s' failed - %w", vol.ID, vol.Storage, err)
		}

		list = append(list, vol)
	}

	return list, nil
}

// checkLocalDevices returns why a VM cannot move with its passed-through devices: those without a mapping never do, and
// mapped ones only while it is off, to a host in the mapping (prepare of PVE::QemuMigrate).
func (d *Datacentre) checkLocalDevices(v *vm, target string) error {
	var local, mapped, missing []string

	for _, key := range slices.Concat(v.Config.numbered("hostpci"), v.Config.numbered("usb")) {
		p, kind := v.Config.Properties(key), PCIMappings
		if isIndexed(key, "usb") {
			kind = USBMappings
		}

		switch {
		case p["mapping"] != "":
			mapped = append(mapped, key+":"+p["mapping"])

			if len(mappingEntries(d.state.Records[kind][p["mapping"]], target)) == 0 {
				missing = append(missing, key)
			}
		case p["host"] != "spice":
			local = append(local, key)
		}
	}

	switch {
	case len(local) > 0:
		return fmt.Errorf("can't migrate VM which uses local devices: %s", strings.Join(local, ", "))
	case len(missing) > 0:
		return fmt.Errorf("can't migrate to '%s': missing mapped devices %s", target, strings.Join(missing, ", "))
	case v.Running && len(mapped) > 0:
		return fmt.Errorf("can't live migrate running VM which uses following mapped devices: %s", strings.Join(mapped, ", "))
	default:
		return nil
	}
}
