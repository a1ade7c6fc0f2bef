package datacentre

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// DestroyVM removes a VM and its disks.
func (d *Datacentre) DestroyVM(user, hostName string, vmid int, p Config) (string, error) {
	return d.vmTask(user, hostName, "qmdestroy", vmid, func(v *vm, inTask bool) error {
		if err := v.kept("VM %d", vmid); err != nil { // it may have been protected since
			return err
		}

		if err := v.locked(); err != nil && inTask && !p.Bool("skiplock") {
			return err
		}

		if v.Running {
			return Refuse("VM %d is running - destroy failed", vmid)
		}

		for _, vol := range d.disks(v) {
			if inTask && v.Template && d.baseInUse(vol) {
				return fmt.Errorf("base volume '%s' is still in use by linked cloned", vol.ID)
			}
		}

		return nil
	}, func(ctx context.Context, _ *worker, _ *vm) error {
		if err := d.sleep(ctx, d.options.Durations.DeleteVM); err != nil {
			return err
		}

		return d.destroy(ctx, vmid, p.Bool("destroy-unreferenced-disks"))
	})
}

// destroy removes a VM's disks one by one, then its configuration, which no one else changes meanwhile.
func (d *Datacentre) destroy(ctx context.Context, vmid int, unreferenced bool) error {
	v := d.state.VMs[vmid]
	owned := d.disks(v)

	if unreferenced {
		for _, vol := range d.state.Volumes {
			if vol.VMID == vmid && vol.Host == v.Host && !slices.Contains(owned, vol) {
				owned = append(owned, vol)
			}
		}
	}

	for _, vol := range owned {
		if err := d.freeDisk(ctx, v.Host, vol); err != nil {
			return err
		}
	}

	// Without quorum the disks are gone by now (PVE::QemuServer, destroy_vm; seen on 9.2.6).
	if err := d.writable(configFile(v.Host, vmid)); err != nil {
		return err
	}

	delete(d.state.VMs, vmid)

	// What anybody may do on a VM that is gone goes too (pve-access-control, remove_vm_access).
	d.dropRules(func(a ACL) bool { return a.Path == "/vms/"+strconv.Itoa(vmid) })

	return nil
}

// CutRemovalShort leaves a VM as a removal that is killed after its last disk: all that is left of its configuration is
// the lock (source: PVE::QemuServer, destroy_vm).
func (d *Datacentre) CutRemovalShort(vmid int) error {
	defer d.changing()()

	v := d.state.VMs[vmid]
	if v == nil {
		return Refuse("Configuration file 'qemu-server/%d.conf' does not exist", vmid)
	}

	owned := d.disks(v)
	v.Config, v.Template, v.Running, v.Lock = Config{}, false, false, "destroyed"

	d.free(owned...)

	return nil
}

// freeDisk removes a volume as its storage does, one at a time.
func (d *Datacentre) freeDisk(ctx context.Context, hostName string, vol *Volume) error {
	s, err := d.needStorage(hostName, vol.Storage, "")
	if err != nil {
		return err
	}

	unlock, err := d.lockStorage(ctx, s)
	if err != nil {
		return err
	}
	defer unlock()

	if err := d.sleep(ctx, d.options.Durations.FreeVolume); err != nil {
		return err
	}

	d.free(vol)

	return nil
}

// DeleteVolume removes a file or a disk that no VM uses.
func (d *Datacentre) DeleteVolume(user, hostName, volid string) (string, error) {
	store, _, err := splitVolume(volid)
	if err != nil {
		return "", err
	}

	if _, err := d.needStorage(hostName, store, ""); err != nil {
		return "", err
	}

	defer d.changing()()

	id := store

	// That a VM has the disk, the API does not ask.
	if v := d.findVolume(hostName, volid); v != nil && v.VMID != 0 {
		id = strconv.Itoa(v.VMID) + "@" + store
	}

	return d.spawn(user, hostName, "imgdel", id, func(_ context.Context, _ *worker) error {
		return d.deleteVolume(hostName, volid)
	})
}

func (d *Datacentre) deleteVolume(hostName, volid string) error {
	path, err := d.VolumePath(hostName, volid)
	if err != nil {
		return err
	}

	v := d.findVolume(hostName, volid)
	_, name, _ := strings.Cut(volid, ":")
	kind, _, _ := strings.Cut(name, "/")

	switch {
	case folders[kind] != "":
		return os.RemoveAll(d.hostPath(hostName, path)) // one that is gone is what was asked for
	case v == nil:
		return fmt.Errorf("volume '%s' does not exist", volid)
	case d.baseInUse(v):
		return fmt.Errorf("base volume '%s' is still in use by linked clones", v.ID)
	}

	d.free(v)

	return nil
}
