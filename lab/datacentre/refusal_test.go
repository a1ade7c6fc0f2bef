package datacentre_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// openWithVMs has a stopped VM 100, a running 101, templates 900 (LVM) and 901 (ZFS), the latter with a linked clone
// 902, a locked 103 and a protected 104.
func openWithVMs(t *testing.T) *datacentre.Datacentre {
	t.Helper()

	d := open(t, fastOptions(t))
	do := requireOK(t, d)

	for _, vmid := range []int{100, 101, 103} {
		do(d.CreateVM(root, "pve1", vmid, basicVM(nil)))
	}

	do(d.CreateVM(root, "pve1", 104, basicVM(datacentre.Config{"protection": "1", "ide2": "none,media=cdrom"})))
	do(d.Start(root, "pve1", 101))
	createTemplate(t, d, 900, "local-lvm")
	createTemplate(t, d, 901, "local-zfs")
	do(d.CloneVM(root, "pve1", 901, datacentre.Config{"newid": "902"}))
	require.NoError(t, d.SetLock(103, "backup"))
	d.Put(datacentre.Tokens, root+"!lab", datacentre.Config{"value": "secret", "privsep": "0"})

	return d
}

// call is a call that is refused before it starts a task.
type call func(d *datacentre.Datacentre) error

func create(user string, vmid int, c datacentre.Config) call {
	return func(d *datacentre.Datacentre) error {
		_, err := d.CreateVM(user, "pve1", vmid, c)

		return err
	}
}

func set(user string, vmid int, c datacentre.Config) call {
	return func(d *datacentre.Datacentre) error { return d.SetConfig(user, "pve1", vmid, c) }
}

// TestRefusedCalls covers refusals that are neither in the recording (lab/proxmox/recording) nor in the engine's tests
// of Proxmox' errors.
func TestRefusedCalls(t *testing.T) {
	t.Parallel()

	d := openWithVMs(t)

	for name, tc := range map[string]struct {
		call    call
		status  int
		message string
		field   string
	}{
		"a CD drive of a protected VM": {
			set(root, 104, datacentre.Config{"cores": "1", "delete": "ide2"}), 500, "can't remove drive 'ide2' - protection mode enabled", "",
		},
		"a clone to another host": {
			func(d *datacentre.Datacentre) error {
				_, err := d.CloneVM(root, "pve1", 900, datacentre.Config{"newid": "200", "full": "1", "target": "pve2"})

				return err
			}, 500, "can't clone VM to node 'pve2' (VM uses local storage)", "",
		},
		"a path by a token": {
			create(root+"!lab", 200, datacentre.Config{"scsi0": "local-lvm:0,import-from=/x.img"}), 500,
			"Only root can pass arbitrary filesystem paths", "",
		},
		"an import of an ISO volume": {
			create(root, 200, datacentre.Config{"scsi0": "local-lvm:0,import-from=local:iso/talos.img"}), 400,
			"has wrong type 'iso' - needs to be 'images' or 'import'", "scsi0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var e *datacentre.Error

			require.ErrorAs(t, tc.call(d), &e)
			assert.Equal(t, tc.status, e.Status)

			if tc.field != "" {
				assert.Contains(t, e.Fields[tc.field], tc.message)
			} else {
				assert.Contains(t, e.Message, tc.message)
			}

			_, exists := d.VM(200)
			assert.False(t, exists, "a refused call creates no VM")
		})
	}
}

func TestFailedTasks(t *testing.T) {
	t.Parallel()

	type call func(d *datacentre.Datacentre) (string, error)

	start := func(vmid int) call {
		return func(d *datacentre.Datacentre) (string, error) { return d.Start(root, "pve1", vmid) }
	}
	startWith := func(c datacentre.Config) call {
		return func(d *datacentre.Datacentre) (string, error) {
			if err := d.SetConfig(root, "pve1", 100, c); err != nil {
				return "", err
			}

			return d.Start(root, "pve1", 100)
		}
	}

	for name, tc := range map[string]struct {
		call call
		want string
	}{
		"a start of a locked VM": {start(103), "VM is locked (backup)"},
		"too much memory":        {startWith(datacentre.Config{"memory": "15000"}), "start failed: QEMU exited with code 1"},
		"too many processors":    {startWith(datacentre.Config{"cores": "9"}), "MAX 8 vcpus allowed per VM on this node"},
		"huge pages without NUMA": {
			startWith(datacentre.Config{"hugepages": "2"}), "numa needs to be enabled to use hugepages",
		},
		"native I/O of a disk that the host caches": {
			startWith(datacentre.Config{"virtio1": "local-lvm:1,aio=native,cache=writeback"}), "start failed: QEMU exited with code 1",
		},
		"an unknown bridge": {
			startWith(datacentre.Config{"net0": "virtio,bridge=vmbr7"}), "bridge 'vmbr7' does not exist",
		},
		"an unknown device": {
			startWith(datacentre.Config{"hostpci0": "0000:09:00"}), "no PCI device found for '0000:09:00'",
		},
		"a stop of a locked VM": {
			func(d *datacentre.Datacentre) (string, error) { return d.Stop(root, "pve1", 103) }, "VM is locked (backup)",
		},
		"a shutdown that the guest ignores": {func(d *datacentre.Datacentre) (string, error) {
			return d.Shutdown(root, "pve1", 101, datacentre.Config{"timeout": "1"})
		}, "VM quit/powerdown failed - got timeout"},
		"a template with clones": {func(d *datacentre.Datacentre) (string, error) {
			return d.DestroyVM(root, "pve1", 901, nil)
		}, "base volume 'local-zfs:base-901-disk-0' is still in use by linked cloned"},
		"a wrong compression": {func(d *datacentre.Datacentre) (string, error) {
			return d.Download(
				root, "pve1", "local",
				datacentre.Config{"url": "https://x/y", "content": "iso", "filename": "b.img", "compression": "zst"},
			)
		}, "decompression failed"},
		"an import of a missing file": {func(d *datacentre.Datacentre) (string, error) {
			return d.CreateVM(root, "pve1", 200, datacentre.Config{"scsi0": "local-lvm:0,import-from=/nothing"})
		}, "unable to create VM 200 - qemu-img: Could not open '/nothing'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := openWithVMs(t)
			upid, err := tc.call(d)
			assert.Contains(t, exitStatus(t, d, upid, err), tc.want)

			_, exists := d.VM(200)
			assert.False(t, exists, "a failed task leaves no VM")
			assert.Contains(t, d.TaskLog(upid)[len(d.TaskLog(upid))-1], "TASK ERROR: ")
		})
	}
}
