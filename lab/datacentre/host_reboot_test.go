package datacentre_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// fakeSystem is an operating system that boots with a fixed command line.
type fakeSystem struct{ commandLine string }

func (s *fakeSystem) Boot(h datacentre.Host) (datacentre.Boot, error) {
	if s.commandLine == "broken" {
		return datacentre.Boot{}, assert.AnError
	}

	return datacentre.Boot{Kernel: h.Kernel, CommandLine: s.commandLine, IOMMU: true}, nil
}

func (*fakeSystem) Show(datacentre.Host) error { return nil }

func hostOnline(d *datacentre.Datacentre, host string) func() bool {
	return func() bool {
		h, _ := d.Host(host)

		return h.Online
	}
}

func TestHostReboot(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	system := &fakeSystem{commandLine: "quiet"}
	require.NoError(t, d.SetHostSystem(system))

	do, g := requireOK(t, d), newFakeGuests()
	d.SetGuests(g)

	for vmid, config := range map[int]datacentre.Config{
		100: {"onboot": "1"},
		101: {"onboot": "1", "startup": "order=2"},
		102: {"onboot": "1", "startup": "order=1,up=30"},
		103: {},
		104: {"onboot": "1"},
	} {
		do(d.CreateVM(root, "pve1", vmid, basicVM(config)))

		if vmid != 104 {
			do(d.Start(root, "pve1", vmid))
		}
	}

	do(d.CreateVM(root, "pve2", 200, basicVM(nil)))
	do(d.Start(root, "pve2", 200))

	system.commandLine = "quiet iommu=pt"

	require.NoError(t, d.RebootHost("pve1"))

	h, _ := d.Host("pve1")
	assert.False(t, h.Online, "it is offline at once")
	assert.True(t, h.Rebooting)
	require.NoError(t, d.RebootHost("pve1"), "a second request during a reboot is ignored")
	require.Eventually(t, hostOnline(d, "pve1"), time.Minute, time.Millisecond)

	var order []string

	require.Eventually(t, func() bool {
		order = nil

		for _, task := range d.Tasks() {
			if task.Type == "startall" && task.OK() {
				order = d.TaskLog(task.UPID)
			}
		}

		return len(order) > 0
	}, time.Minute, time.Millisecond)
	assert.Equal(t, []string{"Starting VM 102", "Starting VM 101", "Starting VM 100", "Starting VM 104", "TASK OK"}, order)

	for vmid, running := range map[int]bool{100: true, 101: true, 102: true, 103: false, 104: true, 200: true} {
		_, on := g.running(vmid)
		assert.Equal(t, running, on, vmid)
	}

	assert.Equal(t, []int{103, 100, 101, 102}, g.off, "in the reverse order of their start")

	h, _ = d.Host("pve1")
	assert.Equal(t, "quiet iommu=pt", h.Boot.CommandLine)
	assert.ErrorContains(t, d.RebootHost("pve9"), "pve9")
}

func TestHostBootFailure(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions(t))
	system := &fakeSystem{commandLine: "quiet"}
	require.NoError(t, d.SetHostSystem(system))

	system.commandLine = "broken"

	require.NoError(t, d.RebootHost("pve1"))

	var h datacentre.Host

	require.Eventually(t, func() bool {
		h, _ = d.Host("pve1")

		return h.Problem != ""
	}, time.Minute, time.Millisecond)
	assert.Equal(t, assert.AnError.Error(), h.Problem)
	assert.False(t, h.Online)
}

func TestRebootResumesAfterRestart(t *testing.T) {
	t.Parallel()

	o := fastOptions(t)
	o.Path = filepath.Join(t.TempDir(), "state.json")
	o.Durations.BootHost = 6 * time.Hour

	first, err := datacentre.Open(o)
	require.NoError(t, err)
	require.NoError(t, first.SetHostSystem(&fakeSystem{commandLine: "quiet"}))
	requireOK(t, first)(first.CreateVM(root, "pve1", 100, basicVM(datacentre.Config{"onboot": "1"})))
	require.NoError(t, first.ChangeHost("pve1", datacentre.HostChange{MovePCI: [2]string{"0000:01:00", "0000:41:00"}}))
	require.NoError(t, first.RebootHost("pve1"))
	require.NoError(t, first.Close())

	d := open(t, o)
	g := newFakeGuests()
	d.SetGuests(g)

	h, _ := d.Host("pve1")
	assert.True(t, h.Rebooting)
	assert.Equal(t, "0000:01:00.0", h.PCI[0].Address, "hardware changes while the host is off")

	require.NoError(t, d.SetHostSystem(&fakeSystem{commandLine: "quiet"}))
	require.Eventually(t, func() bool {
		_, on := g.running(100)

		return on
	}, time.Minute, 5*time.Millisecond)

	h, _ = d.Host("pve1")
	assert.False(t, h.Rebooting)
	assert.Equal(t, "0000:41:00.0", h.PCI[0].Address)
}

func TestHardwareChanges(t *testing.T) {
	t.Parallel()

	off := false

	for name, tc := range map[string]struct {
		change  datacentre.HostChange
		refusal string
		check   func(t *testing.T, h datacentre.Host)
	}{
		"a card shares the boot disk's group": {
			change: datacentre.HostChange{GroupWith: [2]string{"0000:01:00", "0000:09:00.0"}},
			check: func(t *testing.T, h datacentre.Host) {
				t.Helper()
				assert.Equal(t, []int{20, 20}, []int{h.PCI[1].IOMMUGroup, h.PCI[2].IOMMUGroup})
			},
		},
		"a card is taken out": {
			change: datacentre.HostChange{RemovePCI: "0000:01:00"}, check: func(t *testing.T, h datacentre.Host) {
				t.Helper()
				assert.Len(t, h.PCI, 6)
			},
		},
		"the firmware's IOMMU": {
			change: datacentre.HostChange{IOMMU: &off}, check: func(t *testing.T, h datacentre.Host) {
				t.Helper()
				assert.True(t, h.Firmware.IOMMUOff)
				assert.Equal(t, -1, h.PCI[1].IOMMUGroup)
			},
		},
		"a slot that is empty": {
			change: datacentre.HostChange{MovePCI: [2]string{"0000:44:00", "0000:45:00"}}, refusal: "slot 0000:44:00 is empty",
		},
		"an invalid slot": {
			change: datacentre.HostChange{MovePCI: [2]string{"01:00", "0000:45:00"}}, refusal: "write them as 0000:01:00",
		},
		"the group of an empty slot": {
			change: datacentre.HostChange{GroupWith: [2]string{"0000:01:00", "0000:99:00.0"}}, refusal: "no such devices",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := openWithGPUs(t, nil)

			err := d.ChangeHost("pve1", tc.change)
			if tc.refusal != "" {
				require.ErrorContains(t, err, tc.refusal)

				return
			}

			require.NoError(t, err)
			require.NoError(t, d.RebootHost("pve1"))
			require.Eventually(t, hostOnline(d, "pve1"), time.Minute, time.Millisecond)

			h, _ := d.Host("pve1")
			tc.check(t, h)
		})
	}
}
