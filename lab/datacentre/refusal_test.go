package datacentre_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// world is what refusals are tried on: a stopped VM 100, a running 101, templates 900 (LVM) and 901 (ZFS), the latter
// with a linked clone 902, a locked 103, a protected 104.
func world(t *testing.T) *datacentre.Datacentre {
	t.Helper()

	o := fastOptions()

	o.Hosts[0].Storages = append(datacentre.DefaultStorages(),
		datacentre.StorageOptions{Name: "small", Type: "lvm", Content: []string{"images"}, SizeBytes: datacentre.GiB},
		datacentre.StorageOptions{
			Name: "off", Type: "lvm", Content: []string{"images"}, SizeBytes: datacentre.GiB, Disabled: true,
		})
	o.Hosts[1].Storages = append(
		datacentre.DefaultStorages(),
		datacentre.StorageOptions{Name: "far", Type: "lvm", Content: []string{"images"}, SizeBytes: 1},
	)

	d := open(t, o)
	do := ok(t, d)

	for _, vmid := range []int{100, 101, 103} {
		do(d.CreateVM(root, "pve1", vmid, basic(nil)))
	}

	do(d.CreateVM(root, "pve1", 104, basic(datacentre.Config{"protection": "1", "ide2": "none,media=cdrom"})))
	do(d.Start(root, "pve1", 101))
	template(t, d, 900, "local-lvm")
	template(t, d, 901, "local-zfs")
	do(d.CloneVM(root, "pve1", 901, datacentre.CloneRequest{NewID: 902}))
	require.NoError(t, d.SetLock(103, "backup"))
	d.AddToken(root, "lab", "secret")

	return d
}

// call is something that is refused at once.
type call func(d *datacentre.Datacentre) error

func create(user string, vmid int, c datacentre.Config) call {
	return func(d *datacentre.Datacentre) error {
		_, err := d.CreateVM(user, "pve1", vmid, c)

		return err
	}
}

func set(user string, vmid int, c datacentre.Config, del ...string) call {
	return func(d *datacentre.Datacentre) error { return d.SetConfig(user, "pve1", vmid, c, del) }
}

func clone(vmid int, r datacentre.CloneRequest) call {
	return func(d *datacentre.Datacentre) error {
		_, err := d.CloneVM(root, "pve1", vmid, r)

		return err
	}
}

func destroy(vmid int) call {
	return func(d *datacentre.Datacentre) error {
		_, err := d.DestroyVM(root, "pve1", vmid, datacentre.DestroyOptions{})

		return err
	}
}

func TestRefusedAtOnce(t *testing.T) {
	t.Parallel()

	full := true
	linked := false
	d := world(t)

	for name, tc := range map[string]struct {
		call    call
		status  int
		message string
		field   string
	}{
		"a VMID in use": {
			create(root, 101, nil), 500, "unable to create VM 101 - VM 101 already exists on node 'pve1'", "",
		},
		"a clone to a VMID in use": {
			clone(900, datacentre.CloneRequest{NewID: 101}), 500, "unable to create VM 101: config file already exists", "",
		},
		"an unknown storage": {
			create(root, 200, datacentre.Config{"scsi0": "nowhere:1"}), 500, "storage 'nowhere' does not exist", "",
		},
		"a disabled storage": {
			create(root, 200, datacentre.Config{"scsi0": "off:1"}), 500, "storage 'off' is disabled", "",
		},
		"another host's storage": {
			create(root, 200, datacentre.Config{"scsi0": "far:1"}), 500, "storage 'far' is not available on node 'pve1'", "",
		},
		"a storage without images": {
			create(root, 200, datacentre.Config{"scsi0": "local:1"}), 400, "storage 'local' does not support vm images",
			"storage",
		},
		"a missing template": {
			clone(999, datacentre.CloneRequest{NewID: 200}), 500,
			"unable to find configuration file for VM 999 on node 'pve1'", "",
		},
		"a change of a locked VM": {set(root, 103, datacentre.Config{"cores": "1"}), 500, "VM is locked (backup)", ""},
		"a clone of a locked VM":  {clone(103, datacentre.CloneRequest{NewID: 200}), 500, "VM is locked (backup)", ""},
		"a protected VM":          {destroy(104), 500, "can't remove VM 104 - protection mode enabled", ""},
		"a disk of a protected VM": {
			set(root, 104, nil, "scsi0"), 500, "can't remove drive 'scsi0' - protection mode enabled", "",
		},
		"a CD drive of a protected VM": {
			set(root, 104, datacentre.Config{"cores": "1"}, "ide2"), 500, "can't remove drive 'ide2' - protection mode enabled", "",
		},
		"a running VM": {destroy(101), 500, "VM 101 is running - destroy failed", ""},
		"a linked clone of a machine": {
			clone(100, datacentre.CloneRequest{NewID: 200, Full: &linked}), 500,
			"Linked clone feature is not supported for 'local-lvm:vm-100-disk-0' (scsi0)", "",
		},
		"a linked clone's storage": {
			clone(900, datacentre.CloneRequest{NewID: 200, Storage: "local-zfs"}), 500,
			"parameter 'storage' not allowed for linked clones", "",
		},
		"a clone to a host without it": {
			clone(900, datacentre.CloneRequest{NewID: 200, Full: &full, Target: "pve2"}), 500,
			"can't clone VM to node 'pve2' (VM uses local storage)", "",
		},
		"a VMID below 100": {create(root, 99, nil), 400, "does not look like a valid VM ID", "vmid"},
		"a bad name": {
			create(root, 200, datacentre.Config{"name": "a_b"}), 400, "does not look like a valid DNS name", "name",
		},
		"an unknown key": {
			create(root, 200, datacentre.Config{"colour": "red"}), 400, "not defined in schema", "colour",
		},
		"a number that is none": {
			create(root, 200, datacentre.Config{"cores": "two"}), 400, "type check ('integer') failed", "cores",
		},
		"an unknown BIOS": {
			create(root, 200, datacentre.Config{"bios": "efi"}), 400, "enumeration 'seabios, ovmf'", "bios",
		},
		"a raw PCI id by a token": {
			create(root+"!lab", 200, datacentre.Config{"hostpci0": "0000:01:00,pcie=1"}), 500,
			"only root can set 'hostpci0' config for non-mapped devices", "",
		},
		"arguments by a token": {
			set(root+"!lab", 100, datacentre.Config{"args": "-x"}), 500, "only root can set 'args' config", "",
		},
		"a path by a token": {
			create(root+"!lab", 200, datacentre.Config{"scsi0": "local-lvm:0,import-from=/x.img"}), 500,
			"Only root can pass arbitrary filesystem paths", "",
		},
		"an import of an ISO volume": {
			create(root, 200, datacentre.Config{"scsi0": "local-lvm:0,import-from=local:iso/talos.img"}), 400,
			"has wrong type 'iso' - needs to be 'images' or 'import'", "scsi0",
		},
		"a key set and deleted": {
			set(root, 100, datacentre.Config{"ide3": "none,media=cdrom"}, "ide3"), 400, "at the same time", "delete",
		},
		"someone else's change between": {
			set(root, 100, datacentre.Config{"cores": "1", "digest": "0"}), 500, "checksum mismatch (file change by other user?)", "",
		},
		"a move to where it is": {func(d *datacentre.Datacentre) error {
			_, err := d.MoveDisk(root, "pve1", 100, datacentre.MoveRequest{Disk: "scsi0", Storage: "local-lvm"})

			return err
		}, 500, "you can't move to the same storage with same format", ""},
		"a template of a template": {func(d *datacentre.Datacentre) error {
			_, err := d.ConvertToTemplate(root, "pve1", 900)

			return err
		}, 500, "you can't convert a template to a template", ""},
		"a wrong extension": {func(d *datacentre.Datacentre) error {
			_, err := d.Download(
				root, "pve1", "local", datacentre.DownloadRequest{URL: "https://x/y", Content: "iso", Filename: "talos.raw"},
			)

			return err
		}, 400, "wrong file extension", "filename"},
		"an unknown host": {func(d *datacentre.Datacentre) error {
			_, err := d.Start(root, "pve9", 100)

			return err
		}, 500, "hostname lookup 'pve9' failed", ""},
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

			_, made := d.VM(200)
			assert.False(t, made, "nothing is left of what was refused")
		})
	}
}

func TestTasksThatFail(t *testing.T) {
	t.Parallel()

	type call func(d *datacentre.Datacentre) (string, error)

	start := func(vmid int) call {
		return func(d *datacentre.Datacentre) (string, error) { return d.Start(root, "pve1", vmid) }
	}
	startWith := func(c datacentre.Config) call {
		return func(d *datacentre.Datacentre) (string, error) {
			if err := d.SetConfig(root, "pve1", 100, c, nil); err != nil {
				return "", err
			}

			return d.Start(root, "pve1", 100)
		}
	}

	for name, tc := range map[string]struct {
		call call
		want string
	}{
		"a full storage": {func(d *datacentre.Datacentre) (string, error) {
			return d.CreateVM(root, "pve1", 200, datacentre.Config{"scsi0": "small:2"})
		}, "unable to create VM 200 - not enough free space (1073741824 < 2147483648)"},
		"a start of a template": {start(900), "you can't start a vm if it's a template"},
		"a start of a running":  {start(101), "VM 101 already running"},
		"a start of a locked":   {start(103), "VM is locked (backup)"},
		"too much memory":       {startWith(datacentre.Config{"memory": "15000"}), "start failed: QEMU exited with code 1"},
		"too many processors":   {startWith(datacentre.Config{"cores": "9"}), "MAX 8 vcpus allowed per VM on this node"},
		"a bridge that is not": {
			startWith(datacentre.Config{"net0": "virtio,bridge=vmbr7"}), "bridge 'vmbr7' does not exist",
		},
		"a mapping that is not": {
			startWith(datacentre.Config{"hostpci0": "mapping=gpu"}), "PCI device mapping not found for 'gpu'",
		},
		"a device that is not": {
			startWith(datacentre.Config{"hostpci0": "0000:09:00"}), "no PCI device found for '0000:09:00'",
		},
		"a stop of a locked": {
			func(d *datacentre.Datacentre) (string, error) { return d.Stop(root, "pve1", 103) }, "VM is locked (backup)",
		},
		"a delete of a locked": {func(d *datacentre.Datacentre) (string, error) {
			return d.DestroyVM(root, "pve1", 103, datacentre.DestroyOptions{})
		}, "VM is locked (backup)"},
		"a shutdown that no one hears": {func(d *datacentre.Datacentre) (string, error) {
			return d.Shutdown(root, "pve1", 101, datacentre.ShutdownOptions{Timeout: time.Second})
		}, "VM quit/powerdown failed - got timeout"},
		"a shrink": {
			func(d *datacentre.Datacentre) (string, error) { return d.ResizeDisk(root, "pve1", 100, "scsi0", "1G") },
			"shrinking disks is not supported",
		},
		"a disk that is not": {
			func(d *datacentre.Datacentre) (string, error) { return d.ResizeDisk(root, "pve1", 100, "scsi7", "1G") },
			"disk 'scsi7' does not exist",
		},
		"a template with clones": {func(d *datacentre.Datacentre) (string, error) {
			return d.DestroyVM(root, "pve1", 901, datacentre.DestroyOptions{})
		}, "base volume 'local-zfs:base-901-disk-0' is still in use by linked cloned"},
		"a file that exists": {func(d *datacentre.Datacentre) (string, error) {
			return d.Download(
				root, "pve1", "local", datacentre.DownloadRequest{URL: "https://x/y", Content: "iso", Filename: "talos.img"},
			)
		}, "refusing to override existing file '/var/lib/vz/template/iso/talos.img'"},
		"a wrong checksum": {func(d *datacentre.Datacentre) (string, error) {
			return d.Download(root, "pve1", "local", datacentre.DownloadRequest{
				URL: "https://x/y", Content: "iso", Filename: "b.img", Checksum: "00", ChecksumAlgorithm: "sha256",
			})
		}, "checksum mismatch"},
		"a wrong compression": {func(d *datacentre.Datacentre) (string, error) {
			return d.Download(
				root, "pve1", "local",
				datacentre.DownloadRequest{URL: "https://x/y", Content: "iso", Filename: "b.img", Compression: "zst"},
			)
		}, "decompression failed"},
		"an import of nothing": {func(d *datacentre.Datacentre) (string, error) {
			return d.CreateVM(root, "pve1", 200, datacentre.Config{"scsi0": "local-lvm:0,import-from=/nothing"})
		}, "unable to create VM 200 - qemu-img: Could not open '/nothing'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := world(t)
			upid, err := tc.call(d)
			assert.Contains(t, exit(t, d, upid, err), tc.want)

			_, made := d.VM(200)
			assert.False(t, made, "nothing is left of what failed")
			assert.Empty(t, d.Volumes("pve1", "small", ""))
			assert.Contains(t, d.TaskLog(upid)[len(d.TaskLog(upid))-1], "TASK ERROR: ")
		})
	}
}
