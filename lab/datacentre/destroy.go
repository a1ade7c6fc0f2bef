package datacentre

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// DestroyVM deletes a VM and its disks.
func (d *Datacentre) DestroyVM(user, hostName string, vmid int, p Config) (string, error) {
	return d.vmTask(user, hostName, "qmdestroy", vmid, func(v *vm, inTask bool) error {
		if err := v.checkProtection("VM %d", vmid); err != nil { // checked again in the task
			return err
		}

		if _, isResource := d.state.Records[HAResources][HAResourceID(vmid)]; isResource && !p.Bool("purge") {
			return Refuse("unable to remove VM %d - used in HA resources and purge parameter not set.", vmid)
		}

		if jobs := d.replicationsOf(vmid); len(jobs) > 0 && !p.Bool("purge") {
			return Refuse("There is a replication job '%s' for guest '%d' - Please remove that first.", jobs[0], vmid)
		}

		if err := v.checkLock(); err != nil && inTask && !p.Bool("skiplock") {
			return err
		}

		if v.Running {
			return Refuse("VM %d is running - destroy failed", vmid)
		}

		for _, vol := range d.disks(v) {
			if inTask && v.Template && d.hasLinkedClones(vol) {
				return fmt.Errorf("base volume '%s' is still in use by linked cloned", vol.ID)
			}
		}

		return nil
	}, func(ctx context.Context, _ *worker, _ *vm) error {
		if err := d.sleep(ctx, d.options.Durations.DeleteVM); err != nil {
			return err
		}

		if err := d.destroy(ctx, vmid, p.Bool("destroy-unreferenced-disks")); err != nil {
			return err
		}

		for _, id := range d.replicationsOf(vmid) { // copies stay (remove_vmid_jobs of PVE::ReplicationConfig)
			delete(d.state.Records[Replications], id)
		}

		delete(d.state.Records[HAResources], HAResourceID(vmid))
		d.purgeHARules(vmid)

		return nil
	})
}

// destroy deletes a VM's disks one by one, then its configuration, under the configuration lock.
func (d *Datacentre) destroy(ctx context.Context, vmid int, unreferenced bool) error {
	v := d.state.VMs[vmid]
	volumes := d.disks(v)

	if unreferenced {
		for _, vol := range d.state.Volumes {
			if vol.VMID == vmid && (vol.Host == v.Host || vol.Host == "") && !slices.Contains(volumes, vol) {
				volumes = append(volumes, vol)
			}
		}
	}

	for _, vol := range volumes {
		if err := d.deleteDisk(ctx, v.Host, vol); err != nil {
			return err
		}
	}

	// Without quorum, the disks are already deleted at this point (PVE::QemuServer, destroy_vm; observed on 9.2.6).
	if err := d.checkWritable(configFile(v.Host, vmid)); err != nil {
		return err
	}

	delete(d.state.VMs, vmid)

	// The VM's ACLs are deleted with it (pve-access-control, remove_vm_access).
	d.deleteACLs(func(a ACL) bool { return a.Path == "/vms/"+strconv.Itoa(vmid) })

	return nil
}

// InterruptDestroy leaves a VM as a destroy that was killed after its last disk: only the lock remains of its
// configuration (source: PVE::QemuServer, destroy_vm).
func (d *Datacentre) InterruptDestroy(vmid int) error {
	defer d.lockWrite()()

	v := d.state.VMs[vmid]
	if v == nil {
		return Refuse("Configuration file 'qemu-server/%d.conf' does not exist", vmid)
	}

	volumes := d.disks(v)
	v.Config, v.Template, v.Running, v.Lock = Config{}, false, false, "destroyed"

	d.deleteVolumes(volumes...)

	return nil
}

// deleteDisk deletes a volume under its storage's lock.
func (d *Datacentre) deleteDisk(ctx context.Context, hostName string, vol *Volume) error {
	s, err := d.lookupStorage(hostName, vol.Storage, "")
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

	d.deleteVolumes(vol)

	return nil
}

// DeleteVolume deletes a file, or a disk.
func (d *Datacentre) DeleteVolume(user, hostName, volid string) (string, error) {
	store, _, err := splitVolume(volid)
	if err != nil {
		return "", err
	}

	if _, err := d.lookupStorage(hostName, store, ""); err != nil {
		return "", err
	}

	defer d.lockWrite()()

	id := store

	// The API does not check whether a VM uses the disk.
	if v := d.findVolume(hostName, volid); v != nil && v.VMID != 0 {
		id = strconv.Itoa(v.VMID) + "@" + store
	}

	return d.startTask(user, hostName, "imgdel", id, func(_ context.Context, _ *worker) error {
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
	case contentFolders[kind] != "":
		return os.RemoveAll(d.hostPath(hostName, path)) // a missing file is not an error
	case v == nil:
		return fmt.Errorf("volume '%s' does not exist", volid)
	case d.hasLinkedClones(v):
		return fmt.Errorf("base volume '%s' is still in use by linked clones", v.ID)
	}

	d.deleteVolumes(v)

	return nil
}
