package datacentre_test

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// taskDuration waits for a task to succeed and returns its duration in modelled time.
func taskDuration(t *testing.T, d *datacentre.Datacentre, upid string) time.Duration {
	t.Helper()

	task, err := d.WaitTask(t.Context(), upid)
	require.NoError(t, err)
	require.Equal(t, "OK", task.ExitStatus)

	return time.Duration(float64(task.EndTime.Sub(task.StartTime)) * d.Clock().Speed())
}

func startClone(t *testing.T, d *datacentre.Datacentre, r datacentre.Config) string {
	t.Helper()

	upid, err := d.CloneVM(root, "pve1", 900, r)
	require.NoError(t, err)

	return upid
}

// TestCopiesShareStorageThroughput clones a template to one storage and to two.
func TestCopiesShareStorageThroughput(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		o := fastOptions(t)
		o.Clock = datacentre.NewClock(20)
		o.Durations.AllocateVolume = 0
		o.Durations.StorageThroughput = 125 << 20 // ten seconds a clone

		o.Hosts[0].Storages = append(datacentre.DefaultStorages(), datacentre.StorageOptions{
			Name: "third", Type: "lvmthin", Content: []string{"images"}, SizeBytes: 900 * datacentre.GiB,
		})
		d := open(t, o)
		createTemplate(t, d, 900, "third")

		last := func(storages ...string) float64 {
			var (
				upids []string
				took  float64
			)

			first := d.NextID()

			for i, name := range storages {
				id := strconv.Itoa(first + i)
				upids = append(upids, startClone(t, d, datacentre.Config{"newid": id, "full": "1", "storage": name}))
			}

			for _, upid := range upids {
				took = max(took, taskDuration(t, d, upid).Seconds())
			}

			return took
		}

		assert.InDelta(t, 10, last("local-lvm"), 1)
		assert.InDelta(t, 40, last("local-lvm", "local-lvm", "third", "third"), 1, "all are read from one storage")
		assert.InDelta(t, 0, taskDuration(
			t, d, startClone(t, d, datacentre.Config{"newid": strconv.Itoa(d.NextID()), "full": "0"}),
		).Seconds(), 1)
	})
}

// TestStorageAllocatesOneVolumeAtATime starts more clones than a storage can allocate volumes for before PVE's workers
// time out.
func TestStorageAllocatesOneVolumeAtATime(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		o := fastOptions(t)
		o.Clock = datacentre.NewClock(1)
		o.Durations.AllocateVolume = 900 * time.Millisecond
		d := open(t, o)
		createTemplate(t, d, 900, "local-lvm")

		const many = 16 // of two volumes each: the last one waits longer than ten seconds

		var upids []string
		for i := range many {
			upids = append(upids, startClone(t, d, datacentre.Config{"newid": strconv.Itoa(200 + i)}))
		}

		failed := 0

		for _, upid := range upids {
			task, err := d.WaitTask(t.Context(), upid)
			require.NoError(t, err)

			if task.ExitStatus != "OK" {
				assert.Equal(
					t, "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout", task.ExitStatus,
				)

				failed++
			}
		}

		assert.NotZero(t, failed, "no clone timed out")
		assert.Less(t, failed, many, "no clone succeeded")
		assert.Len(t, d.VMs(), 1+many-failed, "failed clones are rolled back")
		assert.Len(t, d.Volumes("pve1", "local-lvm", ""), 2*(1+many-failed))
	})
}

// TestConfigLocks holds a VM's lock with a slow task and requests it.
func TestConfigLocks(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	o.Clock = datacentre.NewClock(10)
	o.Durations.StorageThroughput = 1 // copies never end
	d := open(t, o)
	do := requireOK(t, d)
	do(d.CreateVM(root, "pve1", 100, basicVM(nil)))
	writeTemplate900(t, d)

	first := startClone(t, d, datacentre.Config{"newid": "200", "full": "1"})

	require.Eventually(
		t, func() bool {
			vm, ok := d.VM(200)

			return ok && vm.Lock == "clone"
		}, time.Minute, time.Millisecond,
	)

	cloning, _ := d.VM(200)
	assert.Equal(
		t, datacentre.Config{"description": " qmclone temporary file", "lock": "clone"}, cloning.Config,
		"nothing else until its first drive is copied",
	)
	assert.Contains(t, d.TaskLog(first), "creating a clone of VM 900 with ID 200")

	// The template's lock is shared, the new VM's is not.
	second := startClone(t, d, datacentre.Config{"newid": "201", "full": "1"})

	require.Eventually(t, func() bool {
		_, ok := d.VM(201)

		return ok
	}, time.Minute, time.Millisecond)

	var refused *datacentre.Error

	_, err := d.CloneVM(root, "pve1", 900, datacentre.Config{"newid": "200"})
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "unable to create VM 200: config file already exists", refused.Message)

	// An exclusive lock on the template times out.
	err = d.SetConfig(root, "pve1", 900, datacentre.Config{"name": "other"})
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "can't lock file '/var/lock/qemu-server/lock-900.conf' - got timeout", refused.Message)

	for _, running := range []string{first, second} {
		d.StopTask(running)
		assert.Equal(t, "interrupted by signal", exitStatus(t, d, running, nil))
	}

	assert.Len(t, d.VMs(), 2, "interrupted clones are rolled back")
	require.NoError(t, d.SetConfig(root, "pve1", 900, datacentre.Config{"name": "other"}))
}

// writeTemplate900 creates a template with an image on its disk, without a copy.
func writeTemplate900(t *testing.T, d *datacentre.Datacentre) {
	t.Helper()

	do := requireOK(t, d)
	do(d.CreateVM(root, "pve1", 900, basicVM(nil)))
	require.NoError(t, d.WriteVolume("local-lvm:vm-900-disk-0", talos))
	do(d.ConvertToTemplate(root, "pve1", 900))
}

// TestFullStorages checks each storage type's message without free space, and that failures leave nothing.
func TestFullStorages(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)

	o.Hosts[0].Storages = append(datacentre.DefaultStorages(), datacentre.StorageOptions{
		Name: "folder", Type: "dir", Path: "/mnt/folder", Content: []string{"images"}, SizeBytes: datacentre.GiB,
	})

	for storage, want := range map[string]string{
		"local-lvm": "lvcreate 'pve/vm-100-disk-0' error: Cannot create new thin volume, free space in thin pool pve/data reached threshold.",
		"local-zfs": "zfs error: cannot create 'local-zfs/vm-100-disk-0': out of space",
		"folder":    "unable to create image: qemu-img: /mnt/folder/images/100/vm-100-disk-0.raw: No space left on device",
	} {
		t.Run(storage, func(t *testing.T) {
			t.Parallel()

			d := open(t, o)

			_, err := d.AddFault(datacentre.Fault{Full: storage, Host: "pve1"})
			require.NoError(t, err)

			upid, err := d.CreateVM(root, "pve1", 100, basicVM(datacentre.Config{"scsi0": storage + ":500"}))
			assert.Equal(t, "unable to create VM 100 - "+want, exitStatus(t, d, upid, err))
			assert.Empty(t, d.VMs())
			require.NoError(t, d.ClearFaults())
			assert.Empty(t, d.Volumes("pve1", storage, ""))

			upid, err = d.CreateVM(root, "pve1", 100, basicVM(datacentre.Config{"scsi0": storage + ":500"}))
			assert.Equal(t, "OK", exitStatus(t, d, upid, err), "thin disks occupy no space at first")
		})
	}
}

// TestFullCloneWithoutSpace runs out of space halfway through a full clone, while a linked clone still fits.
func TestFullCloneWithoutSpace(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)

	o.Hosts[0].Storages = append(datacentre.DefaultStorages(), datacentre.StorageOptions{
		Name: "small", Type: "lvmthin", Content: []string{"images"}, SizeBytes: 2 * datacentre.GiB,
	})
	d := open(t, o)
	createTemplate(t, d, 900, "small")

	upid := startClone(t, d, datacentre.Config{"newid": "200", "full": "1"})
	assert.Equal(t, "clone failed: copy failed: command '/usr/bin/qemu-img convert -p -n -O raw /dev/pve/vm-200-disk-1' failed: exit code 1", exitStatus(t, d, upid, nil))
	assert.Contains(
		t, strings.Join(d.TaskLog(upid), "\n"), "qemu-img: error while writing at byte 840957952: No space left on device",
	)

	_, exists := d.VM(200)
	assert.False(t, exists)
	assert.Len(t, d.Volumes("pve1", "small", ""), 2, "the template's own")

	assert.Equal(t, "OK", exitStatus(t, d, startClone(t, d, datacentre.Config{"newid": "201", "full": "0"}), nil))

	s, err := d.Storage("pve1", "small")
	require.NoError(t, err)
	assert.Equal(t, int64(1246<<20), s.UsedBytes, "only the template occupies space")
}

// TestDownloadOfExistingFile: it is refused without a checksum, succeeds with the file's own, and fails with another. A
// file whose deletion was requested earlier is gone, even if the deletion is slow.
func TestDownloadOfExistingFile(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	d := open(t, o)
	content, err := o.Fetch(t.Context(), "")
	require.NoError(t, err)

	download := func(checksum string) string {
		upid, err := d.Download(root, "pve1", "local", datacentre.Config{
			"url": "https://factory.lab/talos", "content": "iso", "filename": "talos.img",
			"checksum": checksum, "checksum-algorithm": "sha256",
		})

		return exitStatus(t, d, upid, err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(content))

	require.Equal(t, "OK", download(""))
	assert.Equal(t, "refusing to override existing file '/var/lib/vz/template/iso/talos.img'", download(""))
	assert.Equal(t, "OK", download(sum))
	assert.Equal(t, "checksum mismatch: got '"+sum+"' != expect '00', aborting", download("00"))

	_, err = d.AddFault(datacentre.Fault{Task: "imgdel", Delay: time.Second})
	require.NoError(t, err)

	removal, err := d.DeleteVolume(root, "pve1", "local:iso/talos.img")
	require.NoError(t, err)
	assert.Equal(t, "OK", download(""))
	assert.Equal(t, "OK", exitStatus(t, d, removal, nil))
}
