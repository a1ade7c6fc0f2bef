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

func TestCommandsOfAHost(t *testing.T) {
	t.Parallel()

	zfs := start(t, hostOptions{speed: 10000, files: true, hardware: zfsHost})
	intel := start(t, hostOptions{speed: 10000, files: true, hardware: intelHost})
	secure := start(t, hostOptions{speed: 10000, files: true, hardware: secureHost})
	bios := start(t, hostOptions{speed: 10000, files: true, hardware: func(o *datacentre.HostOptions) {
		zfsHost(o)
		o.Firmware.BIOS = true
	}})

	const hook = "Re-executing '/etc/kernel/postinst.d/zz-proxmox-boot' in new private mount namespace..\n"

	tests := map[string]struct {
		h              *host
		command        string
		stdout, stderr string
		status         int
	}{
		"the kernel": {h: zfs, command: "uname -r; uname -sm; uname", stdout: "6.17.2-1-pve\nLinux x86_64\nLinux\n"},
		"another kernel": {
			h:       intel,
			command: "uname -r; pveversion",
			stdout:  "6.5.13-5-pve\npve-manager/9.2.6/42db4a6cf33dac83 (running kernel: 6.5.13-5-pve)\n",
		},
		"the name":      {h: zfs, command: "hostname; hostname -f", stdout: "pve1\npve1.lab.internal\n"},
		"no containers": {h: zfs, command: "pct list"},
		"GRUB's loader": {
			h:       intel,
			command: "proxmox-boot-tool status",
			status:  2,
			stderr:  "E: /etc/kernel/proxmox-boot-uuids does not exist.\n",
		},
		"silently":       {h: intel, command: "proxmox-boot-tool status --quiet", status: 2},
		"no Secure Boot": {h: zfs, command: "mokutil --sb-state", stdout: "SecureBoot disabled\n"},
		"Secure Boot":    {h: secure, command: "mokutil --sb-state", stdout: "SecureBoot enabled\n"},
		"no EFI variables": {
			h: bios, command: "efibootmgr", status: 2, stderr: "EFI variables are not supported on this system.\n",
		},
		"systemd-boot's": {
			h:       zfs,
			command: `efibootmgr -v | grep "^Boot$(efibootmgr | sed -n 's/^BootCurrent: //p')" | grep -o 'EFI.*'`,
			stdout:  "EFI\\systemd\\systemd-bootx64.efi\n",
		},
		"GRUB's": {
			h: intel, command: `efibootmgr | grep -o 'EFI.proxmox.*'`, stdout: "EFI\\proxmox\\grubx64.efi\n",
		},
		"GRUB's with a shim": {
			h: secure, command: `efibootmgr | grep -o 'EFI.proxmox.*'`, stdout: "EFI\\proxmox\\shimx64.efi\n",
		},
		"the boot tool": {
			h:       zfs,
			command: "proxmox-boot-tool status",
			stdout: "Re-executing '/usr/sbin/proxmox-boot-tool' in new private mount namespace..\n" +
				"System currently booted with uefi\nC0D5-3F6A is configured with: uefi (versions: 6.17.2-1-pve)\n",
		},
		"the boot tool with GRUB": {
			h:       secure,
			command: "proxmox-boot-tool status | tail -n 1",
			stdout:  "C0D5-3F6A is configured with: grub (versions: 6.17.2-1-pve)\n",
		},
		"the boot tool with a BIOS": {
			h:       bios,
			command: "proxmox-boot-tool status | tail -n 2",
			stdout:  "System currently booted with legacy bios\nC0D5-3F6A is configured with: grub (versions: 6.17.2-1-pve)\n",
		},
		"an image on ZFS": {
			h:       zfs,
			command: "update-initramfs -u -k all",
			stdout: "update-initramfs: Generating /boot/initrd.img-6.17.2-1-pve\nRunning hook script 'zz-proxmox-boot'..\n" +
				hook +
				"Copying and configuring kernels on /dev/disk/by-uuid/C0D5-3F6A\n\tCopying kernel and creating boot-entry for 6.17.2-1-pve\n",
		},
		"an image with GRUB": {
			h:       intel,
			command: "update-initramfs -u",
			stdout: "update-initramfs: Generating /boot/initrd.img-6.5.13-5-pve\nRunning hook script 'zz-proxmox-boot'..\n" +
				hook +
				"No /etc/kernel/proxmox-boot-uuids found, skipping ESP sync.\n",
		},
		"an image of no kernel": {
			h:       zfs,
			command: "update-initramfs -u -k 1.0",
			status:  1,
			stderr:  "/boot/initrd.img-1.0 does not exist. Cannot update.\n",
		},
		"GRUB's configuration": {
			h:       intel,
			command: "update-grub",
			stderr: "Generating grub configuration file ...\nFound linux image: /boot/vmlinuz-6.5.13-5-pve\n" +
				"Found initrd image: /boot/initrd.img-6.5.13-5-pve\nAdding boot menu entry for UEFI Firmware Settings ...\ndone\n",
		},
		"GRUB's devices": {
			h:       zfs,
			command: "lspci -Dnnk -s 01:00.0",
			stdout: "0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation AD104GL [10de:27b0] (rev a1)\n" +
				"\tSubsystem: NVIDIA Corporation Device [10de:16fa]\n\tKernel driver in use: nouveau\n\tKernel modules: nvidiafb, nouveau\n",
		},
		"devices by vendor": {
			h: zfs, command: "lspci -n -d 10de:", stdout: "01:00.0 0300: 10de:27b0 (rev a1)\n01:00.1 0403: 10de:22bc (rev a1)\n",
		},
		"all functions": {h: zfs, command: "lspci -nnD -s 0000:01:00 | wc -l | tr -d ' '", stdout: "2\n"},
		"what lspci is not": {
			h: zfs, command: "lspci -x", status: 1, stderr: "lspci: invalid option -- 'x'\nUsage: lspci [<switches>]\n",
		},
		"pools for scripts": {
			h: zfs, command: "zpool list -Hp -o name,size,health,cap", stdout: "rpool\t996432412672\tONLINE\t0\n",
		},
		"pools": {h: zfs, command: "zpool list -o name,health", stdout: "NAME   HEALTH\nrpool  ONLINE\n"},
		"a pool's property": {
			h:       zfs,
			command: "zpool get -Hp -o value ashift rpool; zfs get -Hp -o value compression,xattr rpool",
			stdout:  "12\non\nsa\n",
		},
		"a pool's disks": {
			h:       zfs,
			command: "zpool status rpool | awk '$1 ~ /mirror|nvme/ {print $1, $2}'",
			stdout:  "mirror-0 ONLINE\nnvme-a-part3 ONLINE\nnvme-b-part3 ONLINE\n",
		},
		"healthy pools": {h: zfs, command: "zpool status -x", stdout: "all pools are healthy\n"},
		"a pool no one has": {
			h: zfs, command: "zpool status tank", status: 1, stderr: "cannot open 'tank': no such pool\n",
		},
		"no pools": {h: intel, command: "zpool list", stderr: "no pools available\n"},
		"datasets": {
			h: zfs, command: "zfs list -H -o name", stdout: "rpool\nrpool/ROOT\nrpool/ROOT/pve-1\nrpool/data\n",
		},
		"the disk": {
			h:       intel,
			command: "df -P / | tail -n 1; df -B1 --output=avail /etc | tail -n 1",
			stdout:  "/dev/mapper/pve-root   104857600 8388608  96468992       8% /\n98784247808\n",
		},
		"no disk": {
			h: intel, command: "df /nothing", status: 1, stderr: "df: /nothing: No such file or directory\n",
		},
		"block devices": {h: zfs, command: "lsblk -dno NAME,SIZE", stdout: "nvme0n1\t953.9G\n"},
		"modules": {
			h:       zfs,
			command: "modprobe vfio-pci && lsmod | grep -c vfio_pci; ls -d $HOST_ROOT/sys/bus/pci/drivers/vfio-pci >/dev/null",
			stdout:  "1\n",
		},
		"no module": {
			h:       zfs,
			command: "modprobe nova",
			status:  1,
			stderr:  "modprobe: FATAL: Module nova not found in directory /lib/modules/6.17.2-1-pve\n",
		},
		"the kernel's messages": {h: zfs, command: "dmesg | grep -c AMD-Vi", stdout: "1\n"},
		"the system runs": {
			h: zfs, command: "systemctl is-system-running; systemctl is-active pveproxy", stdout: "running\nactive\n",
		},
		"no shutdown": {
			h:       zfs,
			command: "shutdown -h now",
			status:  1,
			stderr:  "shutdown: the lab's hosts only reboot, at once: shutdown -r now\n",
		},
		"the hardware API": {
			h:       zfs,
			command: "pvesh get /nodes/localhost/hardware/pci --output-format json | jq -r '.[].id'",
			stdout:  "0000:01:00.0\n0000:01:00.1\n",
		},
		"a mapping": {
			h: zfs,
			command: "pvesh create /cluster/mapping/pci --id gpu --map id=10de:27b0,node=pve1,path=0000:01:00,iommugroup=13,subsystem-id=10de:16fa && " +
				"pvesh get /cluster/mapping/pci --check-node pve1 | jq -c '.[0].checks' && pvesh delete /cluster/mapping/pci/gpu",
			stdout: "[]\n",
		},
		"a mapping that is none": {
			h: zfs, command: "pvesh create /cluster/mapping/pci --id gpu2 --map node=pve1", status: 255,
			stderr: "400 Parameter verification failed.\nmap[0]: invalid format - format error\nmap[0].id: property is missing and it is not optional\nmap[0].path: property is missing and it is not optional\n",
		},
		"through the API's tasks": {
			h:       zfs,
			command: "pvesh create /nodes/localhost/qemu --vmid 300 --name x --cores 2 >/dev/null && qm status 300",
			stdout:  "status: stopped\n",
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stdout, stderr, status := test.h.run(t, test.command, "")
			assert.Equal(t, test.stdout, stdout)
			assert.Equal(t, test.stderr, stderr)
			assert.Equal(t, test.status, status)
		})
	}
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

func TestABootFollowsTheFilesOfTheLoaderInCharge(t *testing.T) {
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
		"systemd-boot's file with the image":   {zfsHost, line + "update-initramfs -u", true},
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

			h := start(t, hostOptions{speed: 10000, files: true, hardware: test.hardware})
			_, stderr, status := h.run(t, test.script, "")
			require.Zero(t, status, stderr)

			words, _, _ := h.run(t, "cat $HOST_ROOT/proc/cmdline", "")
			assert.NotContains(t, words, "iommu=pt", "nothing happens before the reboot")

			h.reboot(t, "systemctl reboot")

			words, _, _ = h.run(t, "cat $HOST_ROOT/proc/cmdline", "")
			assert.Equal(t, test.takes, strings.Contains(words, "iommu=pt"), words)
		})
	}
}

func TestDriversAndCacheFollowTheImage(t *testing.T) {
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

	h := start(t, hostOptions{speed: 10000, files: true, hardware: zfsHost})
	_, stderr, status := h.run(t, "bash -s", files)
	require.Zero(t, status, stderr)

	h.reboot(t, "reboot")

	stdout, _, _ := h.run(t, look, "")
	assert.Equal(t, "nouveau\nsnd_hda_intel\n0\n", stdout, "without update-initramfs nothing has changed")

	_, _, status = h.run(t, "update-initramfs -u -k all", "")
	require.Zero(t, status)
	h.reboot(t, "shutdown -r now")

	stdout, _, _ = h.run(t, look, "")
	assert.Equal(t, "vfio-pci\nvfio-pci\n10307921510\n", stdout)

	stdout, _, _ = h.run(t, "lspci -nnk -d 10de: | grep -c 'in use: vfio-pci'", "")
	assert.Equal(t, "2\n", stdout)

	// Written while it runs, it takes effect and lasts until the next boot.
	stdout, stderr, _ = h.run(
		t,
		`echo 5368709120 >/sys/module/zfs/parameters/zfs_arc_max
awk '/^c_max/ {print $3}' $HOST_ROOT/proc/spl/kstat/zfs/arcstats
echo 6442450944 | tee $HOST_ROOT/sys/module/zfs/parameters/zfs_arc_max; awk '/^c_max/ {print $3}' $HOST_ROOT/proc/spl/kstat/zfs/arcstats`,
		"",
	)
	assert.Equal(t, "5368709120\n6442450944\n6442450944\n", stdout, stderr)

	h.reboot(t, "reboot")

	stdout, _, _ = h.run(t, "cat $HOST_ROOT/sys/module/zfs/parameters/zfs_arc_max", "")
	assert.Equal(t, "10307921510\n", stdout)
}
