package shell_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
)

// TestHostScript runs the script that the program sends to hosts, across a reboot.
func TestHostScript(t *testing.T) {
	t.Parallel()

	zfs := []hostfacts.Pool{{
		Name: "rpool", Size: 928 * datacentre.GiB, Free: 920 * datacentre.GiB, Health: "ONLINE", Ashift: 12, Compression: "on",
		Xattr: "sa", Vdevs: []string{"mirror-0"},
	}}

	const evidence = "the firmware started entry 0001, "

	for name, test := range map[string]struct {
		hardware func(*datacentre.HostOptions)
		system   hostfacts.System
		pools    []hostfacts.Pool
		group    string
	}{
		"systemd-boot on ZFS": {
			hardware: zfsHost, pools: zfs, group: "13",
			system: hostfacts.System{
				Kernel: "6.17.2-1-pve", CPUVendor: "amd", CPUModel: "AMD EPYC 4564P 16-Core Processor",
				BootLoader: "systemd-boot", BootLoaderEvidence: evidence + "systemd-boot", CommandLineFile: "/etc/kernel/cmdline",
				CommandLine: `initrd=\EFI\proxmox\6.17.2-1-pve\initrd.img-6.17.2-1-pve root=ZFS=rpool/ROOT/pve-1 boot=zfs`,
			},
		},
		"GRUB on ZFS with Secure Boot": {
			hardware: secureHost, pools: zfs, group: "13",
			system: hostfacts.System{
				Kernel: "6.17.2-1-pve", CPUVendor: "amd", CPUModel: "AMD EPYC 4564P 16-Core Processor", SecureBoot: true,
				BootLoader: "grub", BootLoaderEvidence: evidence + "GRUB", CommandLineFile: "/etc/default/grub",
				CommandLine: "BOOT_IMAGE=/vmlinuz-6.17.2-1-pve root=ZFS=/ROOT/pve-1 ro root=ZFS=rpool/ROOT/pve-1 boot=zfs quiet",
			},
		},
		"GRUB on ext4 of an old kernel": {
			hardware: intelHost, pools: []hostfacts.Pool{},
			system: hostfacts.System{
				Kernel: "6.5.13-5-pve", CPUVendor: "intel", CPUModel: "Intel(R) Xeon(R) E-2388G",
				BootLoader: "grub", BootLoaderEvidence: evidence + "GRUB", CommandLineFile: "/etc/default/grub",
				CommandLine: "BOOT_IMAGE=/boot/vmlinuz-6.5.13-5-pve root=/dev/mapper/pve-root ro quiet",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := start(t, hostOptions{speed: 10000, hardware: test.hardware})
			plan := spec.Host{
				Name: "pve1",
				Prep: &spec.Prep{IOMMU: true, Repositories: "no-subscription", Reboot: "never"},
				GPUs: []spec.Device{{Name: "gpu", Host: "pve1", PCI: "0000:01:00"}},
			}
			run := func(action string) *hostfacts.Facts {
				stdout, stderr, status := h.run(
					t, scripts.HostCommand(action), scripts.Host(scripts.HostParameters(plan, "talos-proxmox/test", false)),
				)
				require.Zero(t, status, stderr)

				if action == scripts.ActionRestore {
					return nil
				}

				facts, err := hostfacts.Parse([]byte(stdout))
				require.NoError(t, err)

				return facts
			}
			etc := func() string {
				stdout, _, _ := h.run(t, `cd $HOST_ROOT/etc && find . -type f -exec sha256sum {} + | sort -k2`, "")

				return stdout
			}

			_, stderr, status := h.run(t, `mkdir -p $HOST_ROOT/usr/bin && touch $HOST_ROOT/usr/bin/ceph-mon`, "")
			require.Zero(t, status, stderr)

			before := etc()
			facts := run(scripts.ActionFacts)
			assert.NotEmpty(t, facts.System.BootID)

			test.system.Hostname, test.system.Node, test.system.Quorate, test.system.UEFI = "pve1", "pve1", true, true
			test.system.PVE, test.system.Cores, test.system.MemoryKiB = "9.2.6", 12, 96<<20
			test.system.BootID, test.system.AvailableKiB = facts.System.BootID, 95<<20
			assert.Equal(t, test.system, facts.System)
			assert.Equal(t, test.pools, facts.ZFS.Pools)
			assert.Equal(t, hostfacts.Device{
				Address: "0000:01:00.0", Vendor: "10de", Device: "27b0", Class: "030000", SubsystemVendor: "10de",
				SubsystemDevice: "16fa", Group: test.group, Driver: "nouveau",
				Name: "VGA compatible controller [0300]: NVIDIA Corporation AD104GL [10de:27b0] (rev a1)",
			}, facts.Devices[1])
			assert.NotEmpty(t, facts.Prep.Changes)
			assert.Contains(t, facts.Prep.Pending, "0000:01:00.0 is bound to nouveau")
			assert.Empty(t, facts.Prep.Problems)

			run(scripts.ActionApply)
			assert.NotEmpty(t, run(scripts.ActionFacts).Prep.Pending, "a reboot is pending")

			stdout, _, _ := h.run(t, `grep -hE '^(URIs|Components|Enabled):' $HOST_ROOT/etc/apt/sources.list.d/ceph.sources`, "")
			assert.Equal(t, "URIs: https://enterprise.proxmox.com/debian/ceph-squid\nComponents: enterprise\nEnabled: no\n"+
				"URIs: http://download.proxmox.com/debian/ceph-squid\nComponents: no-subscription\n", stdout, "Ceph keeps a repository")

			prepared := etc()

			h.reboot(t, "systemctl reboot")

			facts = run(scripts.ActionApply)
			assert.Empty(t, facts.Prep.Changes)
			assert.Empty(t, facts.Prep.Pending)
			assert.Equal(t, prepared, etc())

			stdout, _, _ = h.run(t, "lspci -Dnnk | grep -c 'in use: vfio-pci'", "")
			assert.Equal(t, "2\n", stdout)

			run(scripts.ActionRestore)
			assert.Equal(t, before, etc())
		})
	}
}
