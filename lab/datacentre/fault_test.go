package datacentre_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestFaultsAreChecked names the option of `lab fault add` that is wrong.
func TestFaultsAreChecked(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	ok(t, d)(d.CreateVM(root, "pve1", 100, basic(nil)))
	require.NoError(t, d.SetLock(100, "snapshot"))

	for name, tc := range map[string]struct {
		fault datacentre.Fault
		want  string
	}{
		"an unknown host": {
			datacentre.Fault{Host: "pve9", Offline: true}, `--host "pve9": no such host: use one of pve1, pve2`,
		},
		"an unknown storage": {datacentre.Fault{Full: "nfs"}, `--full "nfs": no such storage on pve1, pve2`},
		"a lock of no VM":    {datacentre.Fault{Lock: "backup", VMID: 999}, "--vmid 999: no such VM"},
		"a lock of a locked": {
			datacentre.Fault{Lock: "backup", VMID: 100}, "--vmid 100: it is locked already (snapshot)",
		},
	} {
		_, err := d.AddFault(tc.fault)
		assert.ErrorContains(t, err, tc.want, name)
	}

	assert.Empty(t, d.Faults())
}

// TestFaultsThatAreStates sets each, sees it in the model, restarts the data centre, and clears it.
func TestFaultsThatAreStates(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	o.Path = filepath.Join(t.TempDir(), "state.json")
	d, err := datacentre.Open(o)
	require.NoError(t, err)
	ok(t, d)(d.CreateVM(root, "pve1", 100, basic(nil)))

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
	require.Len(t, d.Faults(), 6, "a restart heals nothing")

	h, _ := d.Host("pve2")
	assert.False(t, h.Online)
	assert.False(t, d.Quorate())
	assert.False(t, d.TicketsSince().IsZero())

	s, err := d.Storage("pve1", "local-lvm")
	require.NoError(t, err)
	assert.Equal(t, s.SizeBytes, s.UsedBytes)

	_, hit := d.RequestFault("GET", "/x")
	assert.True(t, hit)

	// What `qm unlock` removes is not a fault any more.
	require.NoError(t, d.SetLock(100, ""))
	assert.Len(t, d.Faults(), 5)

	require.ErrorContains(t, d.ClearFaults(1, 99), "fault 99 is not set")
	assert.Len(t, d.Faults(), 5, "all or nothing")
	require.NoError(t, d.ClearFaults(1))
	require.NoError(t, d.ClearFaults())
	assert.Empty(t, d.Faults())
	assert.True(t, d.Quorate())
	assert.True(t, d.TicketsSince().IsZero())

	id, err := d.AddFault(datacentre.Fault{Lock: "backup", VMID: 100})
	require.NoError(t, err)
	assert.Equal(t, 7, id, "numbers are not used twice")
	require.NoError(t, d.ClearFaults(id))

	vm, _ := d.VM(100)
	assert.Empty(t, vm.Lock)
}

// TestNoQuorum tries what PVE refuses without quorum, in its words, and what it does not.
func TestNoQuorum(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	do := ok(t, d)
	do(d.CreateVM(root, "pve1", 100, basic(nil)))
	do(d.CreateVM(root, "pve1", 101, basic(nil)))
	do(d.CreateVM(root, "pve1", 103, basic(nil)))
	do(d.Start(root, "pve1", 101))

	disks := d.Volumes("pve1", "local-lvm", "images")
	_, err := d.AddFault(datacentre.Fault{NoQuorum: true})
	require.NoError(t, err)

	const notReady = "cluster not ready - no quorum?"

	call := func(_ string, err error) error { return err }

	require.EqualError(t, call(d.CreateVM(root, "pve1", 102, basic(nil))), notReady)
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
			exit(t, d, upid, err), name,
		)
	}

	do(d.Stop(root, "pve1", 101))

	assert.Less(t, len(d.Volumes("pve1", "local-lvm", "images")), len(disks), "a removal frees the disks before it finds that")

	vm, there := d.VM(103)
	require.True(t, there)
	assert.NotEmpty(t, vm.Config["scsi0"])

	require.NoError(t, d.ClearFaults())
	do(d.Start(root, "pve1", 100))
}
