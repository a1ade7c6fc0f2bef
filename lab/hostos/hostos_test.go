package hostos_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
)

func device(address, bus, class, ids, driver string, group int) datacentre.PCIDevice {
	return datacentre.PCIDevice{
		Address:         address,
		Bus:             bus,
		Class:           class,
		VendorID:        "0x" + ids[:4],
		DeviceID:        "0x" + ids[5:],
		SubsystemVendor: "0x10de",
		SubsystemDevice: "0x16fa",
		Driver:          driver, IOMMUGroup: group,
	}
}

func zfsHost() datacentre.HostOptions {
	return datacentre.HostOptions{
		Name: "pve1", Cores: 4, MemoryMiB: 96 * 1024, Pools: []datacentre.ZPool{{Name: "rpool", Root: true}},
		PCI: []datacentre.PCIDevice{
			device("0000:00:01.1", "", "0x060400", "1022:14db", "pcieport", 2),
			device("0000:01:00.0", "0000:00:01.1", "0x030000", "10de:27b0", "nouveau", 13),
			device("0000:01:00.1", "0000:00:01.1", "0x040300", "10de:22bc", "snd_hda_intel", 13),
		},
	}
}

// host is a host with its disk.
type host struct {
	dc     *datacentre.Datacentre
	system *hostos.System
	root   string
}

func furnished(t *testing.T, o datacentre.HostOptions) *host {
	t.Helper()

	h := &host{root: filepath.Join(t.TempDir(), "pve1")}

	var err error

	h.dc, err = datacentre.Open(
		datacentre.Options{
			Hosts: []datacentre.HostOptions{o}, Clock: datacentre.NewClock(10000), Durations: datacentre.DefaultDurations(),
		},
	)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.dc.Close()) })

	h.system = hostos.New(map[string]string{"pve1": h.root})
	require.NoError(t, h.system.Furnish(h.view(t)))
	require.NoError(t, h.dc.SetHostSystem(h.system))

	return h
}

func (h *host) view(t *testing.T) datacentre.Host {
	t.Helper()

	v, known := h.dc.Host("pve1")
	require.True(t, known)

	return v
}

// bash runs a script with this machine's own bash against the tree.
func (h *host) bash(t *testing.T, script string) string {
	t.Helper()

	command := exec.Command("bash", "-euo", "pipefail", "-c", script) //nolint:gosec // the test's own script

	command.Env = append(os.Environ(), "root="+h.root)
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))

	return string(out)
}

func TestAScriptSeesAHost(t *testing.T) {
	t.Parallel()

	zfs := furnished(t, zfsHost())
	intel := furnished(t, datacentre.HostOptions{
		Name:      "pve1",
		Cores:     2,
		CPUModel:  "Intel(R) Xeon(R)",
		MemoryMiB: 1024,
		Firmware:  datacentre.Firmware{SecureBoot: true},
		PCI:       zfsHost().PCI,
	})
	off := zfsHost()
	off.Firmware = datacentre.Firmware{IOMMUOff: true, BIOS: true}
	without := furnished(t, off)

	tests := map[string]struct {
		h            *host
		script, want string
	}{
		"the command line of systemd-boot": {
			zfs, `cat $root/proc/cmdline`,
			"initrd=\\EFI\\proxmox\\6.17.2-1-pve\\initrd.img-6.17.2-1-pve root=ZFS=rpool/ROOT/pve-1 boot=zfs\n",
		},
		"the command line of GRUB": {
			intel, `cat $root/proc/cmdline`, "BOOT_IMAGE=/boot/vmlinuz-6.17.2-1-pve root=/dev/mapper/pve-root ro quiet\n",
		},
		"the command line of GRUB on ZFS": {
			without, `cat $root/proc/cmdline`,
			"BOOT_IMAGE=/vmlinuz-6.17.2-1-pve root=ZFS=/ROOT/pve-1 ro root=ZFS=rpool/ROOT/pve-1 boot=zfs quiet\n",
		},
		"the GPU": {
			zfs,
			`cd $root/sys/bus/pci/devices/0000:01:00.0; cat vendor device class subsystem_vendor subsystem_device boot_vga; basename "$(readlink iommu_group)"; basename "$(readlink driver)"`,
			"0x10de\n0x27b0\n0x030000\n0x10de\n0x16fa\n0\n13\nnouveau\n",
		},
		"the links lead somewhere": {zfs, `find $root/sys -xtype l`, ""},
		"a group's devices": {
			zfs, `ls $root/sys/kernel/iommu_groups/13/devices; cat $root/sys/kernel/iommu_groups/13/type`,
			"0000:01:00.0\n0000:01:00.1\nDMA-FQ\n",
		},
		"a driver's devices": {
			zfs, `for d in $root/sys/bus/pci/drivers/nouveau/0000*; do cat $d/device; done`, "0x27b0\n",
		},
		"a device below its bridge": {
			zfs, `cd $root/sys/bus/pci/devices; readlink 0000:01:00.0`,
			"../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0\n",
		},
		"AMD's IOMMU": {
			zfs, `ls $root/sys/class/iommu; ls $root/sys/firmware/acpi/tables`, "ivhd0\nFACP\nIVRS\n",
		},
		"Intel's IOMMU": {
			intel, `ls $root/sys/class/iommu; ls $root/sys/firmware/acpi/tables`, "dmar0\nDMAR\nFACP\n",
		},
		"no groups without an IOMMU": {without, `[ -e $root/sys/kernel/iommu_groups ] || echo none; [ -e $root/sys/bus/pci/devices/0000:01:00.0/iommu_group ] || echo none`, "none\nnone\n"},
		"no EFI":                     {without, `[ -d $root/sys/firmware/efi ] || echo BIOS`, "BIOS\n"},
		"no table of the IOMMU":      {without, `ls $root/sys/firmware/acpi/tables`, "FACP\n"},
		"Secure Boot":                {intel, `od -An -tu1 -j4 -N1 $root/sys/firmware/efi/efivars/SecureBoot-*`, "   1\n"},
		"no Secure Boot":             {zfs, `od -An -tu1 -j4 -N1 $root/sys/firmware/efi/efivars/SecureBoot-*`, "   0\n"},
		"the memory":                 {zfs, `awk '/^MemTotal/ {print $2}' $root/proc/meminfo`, "100663296\n"},
		"the processors": {
			zfs, `grep -c ^processor $root/proc/cpuinfo; awk -F': ' '/^vendor_id/ {print $2; exit}' $root/proc/cpuinfo`,
			"4\nAuthenticAMD\n",
		},
		"ZFS' own limit": {
			zfs,
			`cat $root/sys/module/zfs/parameters/zfs_arc_{max,min}; awk '/^c_max/ {print $3}' $root/proc/spl/kstat/zfs/arcstats`,
			"0\n0\n102005473280\n",
		},
		"no ZFS":                      {intel, `[ -e $root/sys/module/zfs ] || echo none`, "none\n"},
		"the repositories of a fresh": {zfs, `grep -l enterprise $root/etc/apt/sources.list.d/*.sources | wc -l; grep -h Suites $root/etc/apt/sources.list.d/pve-enterprise.sources`, "2\nSuites: trixie\n"},
		"who keeps the loader": {
			zfs, `cat $root/etc/kernel/proxmox-boot-uuids $root/etc/kernel/cmdline`,
			"C0D5-3F6A\nroot=ZFS=rpool/ROOT/pve-1 boot=zfs\n",
		},
		"no one keeps the loader": {intel, `ls $root/etc/kernel`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, test.h.bash(t, test.script))
		})
	}
}

func TestADiskIsFurnishedOnce(t *testing.T) {
	t.Parallel()

	h := furnished(t, zfsHost())
	h.bash(t, `rm $root/etc/apt/sources.list.d/ceph.sources; echo changed >$root/etc/default/grub`)
	require.NoError(t, h.system.Furnish(h.view(t)))
	assert.Equal(t, "changed\n", h.bash(t, `ls $root/etc/apt/sources.list.d | grep ceph || cat $root/etc/default/grub`))

	// A disk of a lab from before has some files: they stay.
	old := filepath.Join(t.TempDir(), "old")
	require.NoError(t, os.MkdirAll(filepath.Join(old, "etc/default"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(old, "etc/default/grub"), []byte("mine\n"), 0o600))

	o := h.view(t)
	o.Name = "old"
	require.NoError(t, hostos.New(map[string]string{"old": old}).Furnish(o))

	text, err := os.ReadFile(filepath.Join(old, "etc/default/grub"))
	require.NoError(t, err)
	assert.Equal(t, "mine\n", string(text))
	assert.FileExists(t, filepath.Join(old, "etc/kernel/proxmox-boot-uuids"))
}
