package scripts

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

func TestHostScriptIsShellcheckClean(t *testing.T) {
	t.Parallel()

	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not installed; make lint needs it, too")
	}

	parts, err := filepath.Glob("host/*.sh")
	require.NoError(t, err)
	output, err := exec.CommandContext(t.Context(), "shellcheck", parts...).CombinedOutput()
	require.NoError(t, err, string(output))
}

// hostSpecs are the hosts on which every property is tested.
func hostSpecs() map[string]hostSpec {
	return map[string]hostSpec{
		"AMD, systemd-boot on ZFS, a GPU": {gpu: true, zfs: true},
		"AMD, GRUB on ext4":               {loader: "grub"},
		"Intel, GRUB on ext4, a GPU":      {vendor: "intel", loader: "grub", gpu: true},
		"Intel with a kernel before 6.8": {
			vendor: "intel", kernel: "6.5.13-6-pve", pve: "8.1.4", loader: "grub", gpu: true,
		},
		"Secure Boot on ZFS: GRUB by proxmox-boot-tool": {loader: "grub-by-tool", secure: true, zfs: true, gpu: true},
		"a BIOS machine with PVE 8":                     {loader: "grub", bios: true, pve: "8.4.1"},
		"files without a final newline": {
			zfs:     true,
			gpu:     true,
			cmdline: zfsRoot,
			files:   map[string]string{vfioFile: "# mine", zfsFile: "options zfs zfs_prefetch_disable=1"},
		},
		"files with Windows line ends": {
			zfs:     true,
			gpu:     true,
			cmdline: zfsRoot + "\r\n",
			files:   map[string]string{vfioFile: "# mine\r\n", zfsFile: "# mine\r\n"},
		},
		"GRUB's file with Windows line ends": {
			loader: "grub", gpu: true, cmdline: "GRUB_DEFAULT=0\r\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\r\n",
		},
		"empty files that were there": {
			zfs: true, gpu: true, files: map[string]string{vfioFile: "", zfsFile: "", "etc/modprobe.d/blacklist-gpu.conf": ""},
		},
		"GRUB without a line for the kernel": {loader: "grub", gpu: true, cmdline: "GRUB_DEFAULT=0"},
		"half of it was done manually": {
			gpu:     true,
			zfs:     true,
			cmdline: zfsRoot + " iommu=pt\n",
			files:   map[string]string{"etc/modules-load.d/vfio.conf": "vfio\n"},
		},
		"another device is bound manually": {
			gpu: true, files: map[string]string{vfioFile: "options vfio-pci ids=8086:1521\n"},
		},
		"little memory: the ARC's minimum is in the way": {zfs: true, memory: 600},
	}
}

// preparations are the settings with which every property is tested.
func preparations() map[string]func(*spec.Host) {
	return map[string]func(*spec.Host){
		"the defaults":    func(*spec.Host) {},
		"everything":      func(h *spec.Host) { h.Prep.Repositories = "no-subscription"; h.Prep.ZFSArcMaxGiB = new(5.0) },
		"the cache alone": func(h *spec.Host) { h.Prep.IOMMU = false },
		"the enterprise repository, and the cache left alone": func(h *spec.Host) { h.Prep.Repositories = "enterprise"; h.Prep.ZFSArcMaxGiB = new(0.0) },
	}
}

func (m hostSpec) specHost(wish func(*spec.Host)) spec.Host {
	h := preparedHost(wish)
	if m.gpu {
		withGPU(&h)
	}

	return h
}

func TestHostScriptIsIdempotentAndReversible(t *testing.T) {
	t.Parallel()

	for name, m := range hostSpecs() {
		for wish, change := range preparations() {
			if wish != "everything" && name != "AMD, systemd-boot on ZFS, a GPU" {
				continue
			}

			t.Run(name+": "+wish, func(t *testing.T) {
				t.Parallel()
				host, h := newFakeHost(t, m), m.specHost(change)
				before := host.snapshot(true)

				planned := host.facts(h)
				host.assertUnchanged(before, true, "reading facts changes nothing")
				original := host.snapshot(false)
				done := host.apply(h)
				assert.Equal(t, planned.Changes, done.Applied, "the announced changes are made")
				assert.Empty(t, done.Changes)

				applied, calls := host.snapshot(true), host.changingCalls()
				again := host.apply(h)
				assert.Empty(t, again.Applied)
				assert.Equal(t, done.Revision, again.Revision)
				host.assertUnchanged(applied, true, "a second run writes nothing")
				assert.Equal(t, calls, host.changingCalls(), "and calls nothing")
				assert.Empty(t, host.facts(h).Changes)

				host.restore(h)
				host.assertUnchanged(original, false, "removal restores every file, with mode and owner")
			})
		}
	}
}

// bootUpdateCalls are the calls that update what the next boot reads.
var bootUpdateCalls = []string{"proxmox-boot-tool refresh", "update-initramfs -u -k all"}

// TestIntelKernels: since 6.8, kernels enable Intel's IOMMU by default.
func TestIntelKernels(t *testing.T) {
	t.Parallel()

	for kernel, words := range map[string]string{
		"5.15.158-2-pve": " iommu=pt intel_iommu=on", "6.5.13-6-pve": " iommu=pt intel_iommu=on", "6.7.0-1-pve": " iommu=pt intel_iommu=on",
		"6.8.12-1-pve": " iommu=pt", "7.0.1-1-pve": " iommu=pt",
	} {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			host := newFakeHost(t, hostSpec{vendor: "intel", kernel: kernel})
			host.apply(preparedHost())
			assert.Equal(t, zfsRoot+words+"\n", host.read(kernelFile))
			assert.Equal(t, bootUpdateCalls, host.changingCalls())
		})
	}
}

// pciFiles returns the files of PCI devices: address, vendor and device, class.
func pciFiles(devices ...string) map[string]string {
	files := map[string]string{}

	for _, text := range devices {
		fields := strings.Fields(text)
		vendor, device, _ := strings.Cut(fields[1], ":")
		at := "sys/bus/pci/devices/" + fields[0] + "/"
		files[at+"vendor"], files[at+"device"], files[at+"class"] = "0x"+vendor+"\n", "0x"+device+"\n", "0x"+fields[2]+"\n"
	}

	return files
}

func TestHostScriptApply(t *testing.T) {
	t.Parallel()

	binding := blockBegin +
		"options vfio-pci ids=10de:27b0,10de:22bc disable_vga=1\nsoftdep nouveau pre: vfio-pci\nsoftdep snd_hda_intel pre: vfio-pci\n" + blockEnd
	for name, test := range map[string]struct {
		machine hostSpec
		wish    func(*spec.Host)
		files   map[string]string
		calls   []string
	}{
		"systemd-boot on ZFS": {
			machine: hostSpec{gpu: true, zfs: true},
			files: map[string]string{
				kernelFile: zfsRoot + " iommu=pt\n", grubFile: grubText, vfioFile: binding,
				"etc/modules-load.d/vfio.conf": blockBegin + "vfio\nvfio_iommu_type1\nvfio_pci\n" + blockEnd,
				"etc/modprobe.d/blacklist-gpu.conf": blockBegin +
					"blacklist nouveau\nblacklist nvidia\nblacklist nvidiafb\nblacklist nvidia_drm\nblacklist nova_core\n" + blockEnd,
				zfsFile: blockBegin + "options zfs zfs_arc_max=10307502080\n" + blockEnd, arcMax: "10307502080\n",
			},
			calls: bootUpdateCalls,
		},
		"GPUs of Intel and AMD, but no virtual function": {
			machine: hostSpec{files: pciFiles(
				"0000:00:02.0 8086:4c90 030000", "0000:06:00.0 1002:164e 030000", "0000:06:00.1 1002:1640 040300",
				"0000:08:00.1 8086:56c0 038000",
			)},
			wish: func(h *spec.Host) {
				h.GPUs = nil
				h.Devices = []spec.Device{
					{PCI: "0000:00:02.0", Kind: spec.IntelGPU},
					{PCI: "0000:06:00.0", Kind: spec.AMDGPU},
					{PCI: "0000:08:00.1", Kind: spec.IntelGPU},
				}
			},
			files: map[string]string{
				vfioFile: blockBegin + "options vfio-pci ids=8086:4c90,1002:164e disable_vga=1\nsoftdep i915 pre: vfio-pci\n" +
					"softdep xe pre: vfio-pci\nsoftdep amdgpu pre: vfio-pci\nsoftdep radeon pre: vfio-pci\n" + blockEnd,
				"etc/modprobe.d/blacklist-gpu.conf": "",
			},
			calls: bootUpdateCalls,
		},
		"GRUB": {
			machine: hostSpec{loader: "grub"},
			files: map[string]string{
				grubFile: "# If you change this file, run 'update-grub' afterwards to update\nGRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=pt\"\nGRUB_CMDLINE_LINUX=\"\"\n",
				vfioFile: "", zfsFile: "",
			},
			calls: []string{"update-grub", "update-initramfs -u -k all"},
		},
		"GRUB that proxmox-boot-tool manages": {
			machine: hostSpec{loader: "grub-by-tool", secure: true},
			files:   map[string]string{kernelFile: zfsRoot + "\n"},
			calls:   bootUpdateCalls,
		},
		"the ARC alone, live and persistent, without a reboot's files": {
			machine: hostSpec{zfs: true}, wish: func(h *spec.Host) { h.Prep.IOMMU = false; h.Prep.ZFSArcMaxGiB = new(8.0) },
			files: map[string]string{
				zfsFile:                        blockBegin + "options zfs zfs_arc_max=8589934592\n" + blockEnd,
				arcMax:                         "8589934592\n",
				kernelFile:                     zfsRoot + "\n",
				"etc/modules-load.d/vfio.conf": "",
			},
			calls: []string{"update-initramfs -u -k all"},
		},
		"at most 16 GiB by default, and the minimum below the maximum": {
			machine: hostSpec{zfs: true, memory: 1024},
			files: map[string]string{
				zfsFile: blockBegin + "options zfs zfs_arc_max=17179869184\noptions zfs zfs_arc_min=17179869183\n" + blockEnd,
				arcMax:  "17179869184\n", "sys/module/zfs/parameters/zfs_arc_min": "17179869183\n",
			},
			calls: bootUpdateCalls,
		},
		"ids that are bound manually are bound with ours": {
			machine: hostSpec{
				gpu: true, files: map[string]string{"etc/modprobe.d/nic.conf": "options vfio-pci ids=8086:1521\n"},
			},
			files: map[string]string{
				vfioFile: blockBegin +
					"options vfio-pci ids=8086:1521,10de:27b0,10de:22bc disable_vga=1\nsoftdep nouveau pre: vfio-pci\nsoftdep snd_hda_intel pre: vfio-pci\n" + blockEnd,
				"etc/modprobe.d/nic.conf": "options vfio-pci ids=8086:1521\n",
			},
			calls: bootUpdateCalls,
		},
		"what was done manually is left alone": {
			machine: hostSpec{gpu: true, cmdline: zfsRoot + " iommu=pt\n", files: map[string]string{
				vfioFile:                            "options  vfio_pci ids=10de:27b0,10de:22bc\nsoftdep nouveau pre: vfio-pci\nsoftdep snd_hda_intel pre: vfio-pci\n",
				"etc/modules-load.d/vfio.conf":      "vfio\nvfio_iommu_type1\nvfio-pci\n",
				"etc/modprobe.d/blacklist-gpu.conf": "blacklist nouveau\nblacklist nvidia\nblacklist nvidiafb\nblacklist nvidia-drm\nblacklist nova_core\n",
			}},
			files: map[string]string{kernelFile: zfsRoot + " iommu=pt\n", "var/lib/talos-proxmox/revision": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if test.wish == nil {
				test.wish = func(*spec.Host) {}
			}

			host := newFakeHost(t, test.machine)
			host.apply(test.machine.specHost(test.wish))

			for file, content := range test.files {
				assert.Equal(t, content, host.read(file), file)
			}

			assert.Equal(t, test.calls, host.changingCalls())
		})
	}
}
