package shell_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/lab/datacentre"
)

func pci(address, bus, class, ids, driver string, group int) datacentre.PCIDevice {
	return datacentre.PCIDevice{
		Address:         address,
		Bus:             bus,
		Class:           class,
		VendorID:        "0x" + ids[:4],
		DeviceID:        "0x" + ids[5:],
		SubsystemVendor: "0x10de",
		SubsystemDevice: "0x16fa",
		Driver:          driver, IOMMUGroup: group, Vendor: "NVIDIA Corporation", Device: "AD104GL",
	}
}

// zfsHost is a GPU host with ZFS and systemd-boot.
func zfsHost(o *datacentre.HostOptions) {
	o.MemoryMiB = 96 * 1024
	o.Pools = []datacentre.ZPool{
		{
			Name:      "rpool",
			SizeBytes: 928 * datacentre.GiB,
			Mirror:    true,
			Root:      true,
			Disks:     []string{"nvme-a-part3", "nvme-b-part3"},
		},
	}
	o.PCI = []datacentre.PCIDevice{
		pci("0000:00:01.1", "", "0x060400", "1022:14db", "pcieport", 2),
		pci("0000:01:00.0", "0000:00:01.1", "0x030000", "10de:27b0", "nouveau", 13),
		pci("0000:01:00.1", "0000:00:01.1", "0x040300", "10de:22bc", "snd_hda_intel", 13),
	}
}

func intelHost(o *datacentre.HostOptions) {
	zfsHost(o)
	o.Pools, o.CPUModel, o.Kernel = nil, "Intel(R) Xeon(R) E-2388G", "6.5.13-5-pve"
}

func secureHost(o *datacentre.HostOptions) {
	zfsHost(o)
	o.Firmware.SecureBoot = true
}

// reboot reboots the host and waits until its shell answers again.
func (h *host) reboot(t *testing.T, command string) {
	t.Helper()

	before, _, _ := h.run(t, "cat $HOST_ROOT/proc/sys/kernel/random/boot_id", "")

	_, stderr, status := h.run(t, command, "")
	require.Zero(t, status, stderr)
	require.Error(t, h.client.Wait(), "the connection drops")

	require.Eventually(t, func() bool {
		client, err := ssh.Dial("tcp", h.address, h.config("root", h.key))
		if err != nil {
			return false
		}

		h.client = client

		return true
	}, time.Minute, 20*time.Millisecond)
	t.Cleanup(func() { _ = h.client.Close() })

	after, _, _ := h.run(t, "cat $HOST_ROOT/proc/sys/kernel/random/boot_id", "")
	assert.NotEqual(t, before, after)
}

func TestBootUsesActiveLoadersFiles(t *testing.T) {
	t.Parallel()

	const (
		wrongGRUB = `sed -i 's/^GRUB_CMDLINE_LINUX_DEFAULT=.*/GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"/' $HOST_ROOT/etc/default/grub; `
		line      = `echo root=ZFS=rpool/ROOT/pve-1 boot=zfs iommu=pt > /etc/kernel/cmdline; `
	)

	tests := map[string]struct {
		hardware func(*datacentre.HostOptions)
		script   string
		takes    bool
	}{
		"systemd-boot's file, refreshed":       {zfsHost, line + "proxmox-boot-tool refresh", true},
		"systemd-boot's file alone":            {zfsHost, line, false},
		"systemd-boot's file with the image":   {zfsHost, line + "update-initramfs -u -k all", true},
		"systemd-boot's file by way of GRUB":   {zfsHost, line + "update-grub", true},
		"GRUB's file where systemd-boot is":    {zfsHost, wrongGRUB + "proxmox-boot-tool refresh; update-grub", false},
		"GRUB's file":                          {intelHost, wrongGRUB + "update-grub", true},
		"GRUB's file alone":                    {intelHost, wrongGRUB, false},
		"GRUB's file and the image":            {intelHost, wrongGRUB + "update-initramfs -u -k all", false},
		"systemd-boot's file where GRUB is":    {intelHost, line + "proxmox-boot-tool refresh; update-grub", false},
		"GRUB's file with Secure Boot on ZFS":  {secureHost, wrongGRUB + "proxmox-boot-tool refresh", true},
		"systemd-boot's file with Secure Boot": {secureHost, line + "proxmox-boot-tool refresh", false},
		"a file of GRUB's folder":              {intelHost, `echo 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT iommu=pt"' > /etc/default/grub.d/gpu.cfg; update-grub`, true},
		"a file of GRUB's with Windows' line ends": {
			intelHost, wrongGRUB + `sed -i 's/$/\r/' $HOST_ROOT/etc/default/grub; update-grub`, true,
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := start(t, hostOptions{speed: 10000, hardware: test.hardware})
			_, stderr, status := h.run(t, test.script, "")
			require.Zero(t, status, stderr)

			words, _, _ := h.run(t, "cat $HOST_ROOT/proc/cmdline", "")
			assert.NotContains(t, words, "iommu=pt", "no change before the reboot")

			h.reboot(t, "systemctl reboot")

			words, _, _ = h.run(t, "cat $HOST_ROOT/proc/cmdline", "")
			assert.Equal(t, test.takes, strings.Contains(words, "iommu=pt"), words)
		})
	}
}

func TestDriversAndARCFollowInitramfs(t *testing.T) {
	t.Parallel()

	const (
		files = `
set -euo pipefail
printf '%s\n' 'options vfio-pci ids=10de:27b0,10de:22bc disable_vga=1' 'softdep nouveau pre: vfio-pci' 'softdep snd_hda_intel pre: vfio-pci' >/etc/modprobe.d/vfio.conf
printf '%s\n' vfio vfio_iommu_type1 vfio_pci >/etc/modules-load.d/vfio.conf
echo 'options zfs zfs_arc_max=10307921510' >/etc/modprobe.d/zfs.conf
`
		look = `for f in 0 1; do basename "$(readlink $HOST_ROOT/sys/bus/pci/devices/0000:01:00.$f/driver)"; done; cat $HOST_ROOT/sys/module/zfs/parameters/zfs_arc_max`
	)

	h := start(t, hostOptions{speed: 10000, hardware: zfsHost})
	_, stderr, status := h.run(t, files, "")
	require.Zero(t, status, stderr)

	h.reboot(t, "systemctl reboot")

	stdout, _, _ := h.run(t, look, "")
	assert.Equal(t, "nouveau\nsnd_hda_intel\n0\n", stdout, "no change without update-initramfs")

	_, _, status = h.run(t, "update-initramfs -u -k all", "")
	require.Zero(t, status)
	h.reboot(t, "systemctl reboot")

	stdout, _, _ = h.run(t, look, "")
	assert.Equal(t, "vfio-pci\nvfio-pci\n10307921510\n", stdout)

	stdout, _, _ = h.run(t, "lspci -Dnnk | grep -c 'in use: vfio-pci'", "")
	assert.Equal(t, "2\n", stdout)

	// Written at runtime, it takes effect and lasts until the next boot.
	stdout, stderr, _ = h.run(
		t,
		`echo 5368709120 >/sys/module/zfs/parameters/zfs_arc_max
awk '/^c_max/ {print $3}' $HOST_ROOT/proc/spl/kstat/zfs/arcstats
echo 6442450944 | tee $HOST_ROOT/sys/module/zfs/parameters/zfs_arc_max; awk '/^c_max/ {print $3}' $HOST_ROOT/proc/spl/kstat/zfs/arcstats`,
		"",
	)
	assert.Equal(t, "5368709120\n6442450944\n6442450944\n", stdout, stderr)

	h.reboot(t, "systemctl reboot")

	stdout, _, _ = h.run(t, "cat $HOST_ROOT/sys/module/zfs/parameters/zfs_arc_max", "")
	assert.Equal(t, "10307921510\n", stdout)
}
