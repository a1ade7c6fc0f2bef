package datacentre_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

func TestSaveAndOpen(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	o.Path = filepath.Join(t.TempDir(), "state.json")

	first, err := datacentre.Open(o)
	require.NoError(t, err)

	do := requireOK(t, first)
	first.Put(datacentre.Users, root, datacentre.Config{"password": "password"})
	first.Put(datacentre.Tokens, root+"!lab", datacentre.Config{"value": "secret", "privsep": "0"})
	first.Put(datacentre.Pools, "lab", nil)
	createTemplate(t, first, 900, "local-lvm")
	do(first.CloneVM(root, "pve1", 900, datacentre.Config{"newid": "101", "pool": "lab"}))
	do(first.Start(root, "pve1", 101))

	lease, leased := first.Lease("vmbr0", "02:00:00:00:00:01")
	require.True(t, leased)
	require.NoError(t, first.Close())

	info, err := os.Stat(o.Path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	second := open(t, o)
	assert.Equal(t, first.VMs()[1].Config, second.VMs()[1].Config)
	assert.Equal(t, first.VMs()[0].Digest, second.VMs()[0].Digest)
	assert.Equal(t, "lab", second.VMs()[0].Pool)
	assert.Len(t, second.Tasks(), len(first.Tasks()))
	assert.Equal(t, first.SigningKey(), second.SigningKey())
	assert.True(t, second.CheckPassword(root, "password"))
	assert.True(t, second.CheckToken(root+"!lab", "secret"))

	img, err := second.ReadVolume("local-lvm:vm-101-disk-1")
	require.NoError(t, err)
	assert.Equal(t, talos, img)

	again, _ := second.Lease("vmbr0", "02:00:00:00:00:01")
	assert.Equal(t, lease, again)

	g := newFakeGuests()
	second.SetGuests(g)

	hw, on := g.running(101)
	assert.True(t, on, "a running VM is powered on again")
	assert.Equal(t, 101, hw.VMID)
}

func TestCloseRollsBackTasks(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	o.Path = filepath.Join(t.TempDir(), "state.json")
	o.Clock = datacentre.NewClock(1)
	o.Durations.CreateVM = time.Hour

	first, err := datacentre.Open(o)
	require.NoError(t, err)

	upid, err := first.CreateVM(root, "pve1", 100, basicVM(nil))
	require.NoError(t, err)
	require.NoError(t, first.Close())

	task, _ := first.Task(upid)
	assert.Equal(t, "interrupted by signal", task.ExitStatus)

	second := open(t, o)
	assert.Empty(t, second.VMs())

	_, err = first.Start(root, "pve1", 100)
	require.Error(t, err)
}

func TestKillLeavesLockedVM(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	o.Path = filepath.Join(t.TempDir(), "state.json")
	o.Clock = datacentre.NewClock(1)
	o.Durations.CreateVM = time.Hour
	o.SaveDelay = time.Millisecond

	killed := open(t, o)
	upid, err := killed.CreateVM(root, "pve1", 100, basicVM(nil))
	require.NoError(t, err)

	copied := o
	copied.Path = filepath.Join(t.TempDir(), "state.json")

	require.Eventually(t, func() bool {
		b, err := os.ReadFile(o.Path)
		if err != nil || os.WriteFile(copied.Path, b, 0o600) != nil {
			return false
		}

		d, err := datacentre.Open(copied)

		return err == nil && len(d.VMs()) == 1 && d.Close() == nil
	}, time.Minute, 10*time.Millisecond)

	second := open(t, copied)
	vm, _ := second.VM(100)
	assert.Equal(t, "create", vm.Lock)

	task, _ := second.Task(upid)
	assert.Equal(t, "unexpected status", task.ExitStatus)

	killed.StopTask(upid)

	task, err = killed.WaitTask(t.Context(), upid)
	require.NoError(t, err)
	assert.Equal(t, "interrupted by signal", task.ExitStatus)
}

func TestUnreadableStateFileIsKept(t *testing.T) {
	t.Parallel()

	for content, want := range map[string]string{
		"{": "is damaged",
		`{"users": {"root@pam": {"id": "root@pam"}}}`: "is another version's: run `make down` with that version, or remove",
	} {
		o := fastOptions(t)
		o.Path = filepath.Join(t.TempDir(), "state.json")
		require.NoError(t, os.WriteFile(o.Path, []byte(content), 0o600))

		_, err := datacentre.Open(o)
		require.ErrorContains(t, err, want)

		kept, err := os.ReadFile(o.Path)
		require.NoError(t, err)
		assert.Equal(t, content, string(kept))
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	d.Reserve("02:00:00:00:00:AA", netip.MustParseAddr("127.30.1.50"))

	address := func(bridge, mac string) string {
		l, ok := d.Lease(bridge, mac)
		if !ok {
			return "none"
		}

		return l.Address.String()
	}

	assert.Equal(t, "127.30.1.50/24", address("vmbr0", "02:00:00:00:00:aa"), "a reservation")
	assert.Equal(t, "127.30.1.100/24", address("vmbr0", "02:00:00:00:00:01"), "the pool's first")
	assert.Equal(t, "127.30.1.101/24", address("vmbr0", "02:00:00:00:00:02"), "the pool's next")
	assert.Equal(t, "127.30.1.100/24", address("vmbr0", "02:00:00:00:00:01"), "the same again")
	assert.Equal(t, "none", address("vmbr0", "02:00:00:00:00:03"), "the pool is exhausted")
	assert.Equal(t, "none", address("vmbr9", "02:00:00:00:00:03"), "no server there")
}

func TestSizes(t *testing.T) {
	t.Parallel()

	for bytes, text := range map[int64]string{
		20 * datacentre.GiB: "20G", 540672: "528K", 1000: "1000", 4 << 20: "4M", 2 << 40: "2T", 1246 << 20: "1246M", 0: "0",
	} {
		assert.Equal(t, text, datacentre.FormatSize(bytes))

		n, err := datacentre.ParseSize(text)
		require.NoError(t, err)
		assert.Equal(t, bytes, n)
	}

	_, err := datacentre.ParseSize("much")
	require.Error(t, err)
}
