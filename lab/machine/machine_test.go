package machine_test

import (
	"net"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
)

// liveHardware returns a VM with a blank disk and the nocloud ISO behind it.
func (l *lab) liveHardware(n int) datacentre.Hardware {
	hw := l.hardware(n)
	iso := datacentre.GuestDisk{Interface: "ide2", Volume: "local:iso/nocloud-amd64.iso", CDROM: true}
	live := diskOf(l.version)
	live.Live = true

	l.mu.Lock()
	l.volumes[iso.Volume], l.volumes[hw.Disks[0].Volume] = live, image.Image{}
	l.mu.Unlock()

	hw.Disks, hw.Boot = append(hw.Disks, iso), append(hw.Boot, iso)

	return hw
}

func TestISOWithAMissingDiskComesBackInMaintenanceMode(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.machines.PowerOn(l.liveHardware(11))
	l.waitForStage(11, "maintenance")
	l.apply(11, l.configuration(machinetype.TypeControlPlane, "machine:\n  install:\n    disk: /dev/nvme0n1\n"))
	l.waitForConsole(11, "install failed: lstat /dev/nvme0n1: no such file or directory")
	l.waitForStage(11, "maintenance")
}

func TestISOBeforeAnInstalledDiskHalts(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	hw := l.liveHardware(11)
	hw.Boot = []datacentre.GuestDisk{hw.Boot[1], hw.Boot[0]}
	require.NoError(t, l.WriteVolume(hw.Disks[0].Volume, disk()))
	l.machines.PowerOn(hw)
	l.until("the machine says so", func() bool {
		return strings.Contains(l.status(11).Problem, "put the disk first in the VM's boot order")
	})
}

func TestNothingToBoot(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		content image.Image
		problem string
	}{
		"a blank disk": {image.Image{}, "no bootable device (scsi0: blank)"},
		"another architecture": {
			image.Image{OS: "talos", Version: "v1.12.6", Arch: "arm64"},
			"no bootable device (scsi0: Talos for arm64, and the machine's processor is x86)",
		},
		"another system, which has no Talos API": {
			image.Image{OS: "debian", Version: "13"}, "cloud-init: instance",
		},
		"a disk without a volume": {image.Image{OS: "missing"}, "no bootable device (scsi0: no volume"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t)
			hw := l.hardware(11)

			if test.content.OS != "missing" {
				require.NoError(t, l.WriteVolume(hw.Disks[0].Volume, test.content))
			}

			stage := "no system"
			if test.content.OS == "debian" {
				stage = "debian"
			}

			l.machines.PowerOn(hw)
			l.waitForStage(11, stage)

			l.machines.PowerOff(11)
			assert.Empty(t, l.machines.Status())

			l.machines.PowerOn(hw)
			l.waitForConsole(11, test.problem)
		})
	}
}

func TestAddressInUseIsReported(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	ln, err := net.Listen("tcp", l.address(11)+":50000")
	require.NoError(t, err)

	defer func() { _ = ln.Close() }()

	require.NoError(t, l.WriteVolume(l.hardware(11).Disks[0].Volume, disk()))
	l.machines.PowerOn(l.hardware(11))
	l.until("the status says so", func() bool {
		return strings.Contains(l.status(11).Problem, "stop it or give this machine another address")
	})
}

// resetRequest returns a reset that keeps the system and reboots.
func resetRequest(graceful bool) *machineapi.ResetRequest {
	return &machineapi.ResetRequest{
		Graceful: graceful,
		Reboot:   true,
		SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
			{Label: "STATE", Wipe: true}, {Label: "EPHEMERAL", Wipe: true},
		},
	}
}

func TestReset(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.cluster(3, 1)

	require.NoError(t, l.client(13).ResetGeneric(l.context(), resetRequest(true)))
	l.waitForStage(13, "maintenance")

	members, err := l.client(11).EtcdMemberList(l.context(), &machineapi.EtcdMemberListRequest{})
	require.NoError(t, err)
	assert.Len(t, members.GetMessages()[0].GetMembers(), 2, "a graceful reset leaves etcd")

	require.NoError(t, l.client(21).ResetGeneric(l.context(), &machineapi.ResetRequest{Graceful: true}))
	assert.Equal(t, 21, <-l.off, "a reset without a reboot switches the machine off")

	blank, err := l.ReadVolume(l.hardware(21).Disks[0].Volume)
	require.NoError(t, err)
	assert.Empty(t, blank.OS, "the whole system disk is wiped")

	// A reset member joins as a new one.
	l.apply(13, l.configuration(machinetype.TypeControlPlane))
	l.until("the third member votes again", func() bool { return l.status(13).Stage == "running" && l.status(13).Ready })
}

func TestLastControlPlaneCannotLeaveGracefully(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.cluster(1, 0)

	require.NoError(t, l.client(11).ResetGeneric(l.context(), resetRequest(true)))
	l.waitForConsole(11, "reset failed: etcdserver: re-configuration failed due to not enough started members")
	l.waitForStage(11, "running")

	require.NoError(t, l.client(11).ResetGeneric(l.context(), resetRequest(false)))
	l.waitForStage(11, "maintenance")
}

func TestRebootAndShutdown(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.cluster(1, 0)

	c := l.client(11)
	require.NoError(t, c.Reboot(l.context()))
	assert.Error(t, c.Reboot(l.context()), "one sequence at a time")
	l.until("the machine is back", func() bool {
		return strings.Count(l.console(11), "Linux Talos") == 2 && l.status(11).Ready
	})

	require.NoError(t, l.client(11).Shutdown(l.context()))
	assert.Equal(t, 11, <-l.off)
}
