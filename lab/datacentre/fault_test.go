package datacentre_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestInvalidFaults expects the name of the wrong option of `lab fault add`.
func TestInvalidFaults(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	requireOK(t, d)(d.CreateVM(root, "pve1", 100, basicVM(nil)))
	require.NoError(t, d.SetLock(100, "snapshot"))

	for name, tc := range map[string]struct {
		fault datacentre.Fault
		want  string
	}{
		"an unknown host": {
			datacentre.Fault{Host: "pve9", Offline: true}, `--host "pve9": no such host: use one of pve1, pve2`,
		},
		"an unknown storage":      {datacentre.Fault{Full: "nfs"}, `--full "nfs": no such storage on pve1, pve2`},
		"a lock of an unknown VM": {datacentre.Fault{Lock: "backup", VMID: 999}, "--vmid 999: no such VM"},
		"a lock of a locked VM": {
			datacentre.Fault{Lock: "backup", VMID: 100}, "--vmid 100: it is locked already (snapshot)",
		},
	} {
		_, err := d.AddFault(tc.fault)
		assert.ErrorContains(t, err, tc.want, name)
	}

	assert.Empty(t, d.Faults())
}

// TestStateFaults sets each fault, checks the model, restarts the data centre, and clears the faults.
func TestStateFaults(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	o.Path = filepath.Join(t.TempDir(), "state.json")
	d, err := datacentre.Open(o)
	require.NoError(t, err)
	requireOK(t, d)(d.CreateVM(root, "pve1", 100, basicVM(nil)))

	for _, f := range []datacentre.Fault{
		{Offline: true, Host: "pve2"},
		{NoQuorum: true},
		{Full: "local-lvm"},
		{Lock: "backup", VMID: 100},
		{ExpireTickets: true},
		{Path: "/x$", Reset: true, Times: 2},
	} {
		_, err := d.AddFault(f)
		require.NoError(t, err)
	}

	require.NoError(t, d.Close())
	d = open(t, o)
	require.Len(t, d.Faults(), 6, "faults survive a restart")

	h, _ := d.Host("pve2")
	assert.False(t, h.Online)
	assert.False(t, d.Quorate())
	assert.False(t, d.TicketsRevokedAt().IsZero())

	s, err := d.Storage("pve1", "local-lvm")
	require.NoError(t, err)
	assert.Equal(t, s.SizeBytes, s.UsedBytes)

	_, hit := d.RequestFault("GET", "/x")
	assert.True(t, hit)

	// A lock removed by `qm unlock` is no longer a fault.
	require.NoError(t, d.SetLock(100, ""))
	assert.Len(t, d.Faults(), 5)

	require.ErrorContains(t, d.ClearFaults(1, 99), "fault 99 is not set")
	assert.Len(t, d.Faults(), 5, "all or nothing")
	require.NoError(t, d.ClearFaults(1))
	require.NoError(t, d.ClearFaults())
	assert.Empty(t, d.Faults())
	assert.True(t, d.Quorate())
	assert.True(t, d.TicketsRevokedAt().IsZero())

	id, err := d.AddFault(datacentre.Fault{Lock: "backup", VMID: 100})
	require.NoError(t, err)
	assert.Equal(t, 7, id, "ids are not reused")
	require.NoError(t, d.ClearFaults(id))

	vm, _ := d.VM(100)
	assert.Empty(t, vm.Lock)
}

// TestNoQuorum checks PVE's messages for what it refuses without quorum, and what still works.
func TestNoQuorum(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	do := requireOK(t, d)
	do(d.CreateVM(root, "pve1", 100, basicVM(nil)))
	do(d.CreateVM(root, "pve1", 101, basicVM(nil)))
	do(d.CreateVM(root, "pve1", 103, basicVM(nil)))
	do(d.Start(root, "pve1", 101))

	disks := d.Volumes("pve1", "local-lvm", "images")
	_, err := d.AddFault(datacentre.Fault{NoQuorum: true})
	require.NoError(t, err)

	const notReady = "cluster not ready - no quorum?"

	call := func(_ string, err error) error { return err }

	require.EqualError(t, call(d.CreateVM(root, "pve1", 102, basicVM(nil))), notReady)
	require.EqualError(t, call(d.CloneVM(root, "pve1", 100, datacentre.Config{"newid": "102"})), notReady)
	require.EqualError(t, call(d.Start(root, "pve1", 100)), notReady)
	require.EqualError(t, call(d.Migrate(root, "pve1", 100, datacentre.Config{"target": "pve2"})), notReady)
	require.ErrorContains(
		t, d.SetConfig(root, "pve1", 100, datacentre.Config{"name": "x"}),
		"unable to open file '/etc/pve/nodes/pve1/qemu-server/100.conf.tmp.",
	)
	_, err = d.LockClusterFile("user_cfg")
	require.EqualError(t, err, "cfs-lock 'file-user_cfg' error: no quorum!")

	for name, begin := range map[string]func() (string, error){
		"resize": func() (string, error) {
			return d.ResizeDisk(root, "pve1", 100, datacentre.Config{"disk": "scsi0", "size": "30G"})
		},
		"delete":  func() (string, error) { return d.DestroyVM(root, "pve1", 103, nil) },
		"convert": func() (string, error) { return d.ConvertToTemplate(root, "pve1", 100) },
	} {
		upid, err := begin()
		assert.Regexp(
			t, `^unable to open file '/etc/pve/nodes/pve1/qemu-server/10[03]\.conf\.tmp\.\d+' - Permission denied$`,
			exitStatus(t, d, upid, err), name,
		)
	}

	do(d.Stop(root, "pve1", 101))

	assert.Less(t, len(d.Volumes("pve1", "local-lvm", "images")), len(disks), "a destroy deletes the disks before it fails")

	vm, ok := d.VM(103)
	require.True(t, ok)
	assert.NotEmpty(t, vm.Config["scsi0"])

	require.NoError(t, d.ClearFaults())
	do(d.Start(root, "pve1", 100))
}
