package hostos

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/lab/datacentre"
)

func TestIOMMUActive(t *testing.T) {
	t.Parallel()

	const oldKernel, newKernel = "6.5.13-5-pve", "6.8.4-2-pve"

	for name, tc := range map[string]struct {
		cpu, kernel, words string
		firmware           datacentre.Firmware
		active             bool
	}{
		"AMD has it by default":              {cpu: "AMD EPYC", kernel: oldKernel, active: true},
		"a parameter disables AMD's":         {cpu: "AMD EPYC", kernel: newKernel, words: "quiet amd_iommu=off"},
		"Intel needs a parameter before 6.8": {cpu: "Intel Xeon", kernel: oldKernel, words: "iommu=pt"},
		"a parameter enables Intel's": {
			cpu: "Intel Xeon", kernel: oldKernel, words: "quiet intel_iommu=on iommu=pt", active: true,
		},
		"a parameter with two values": {
			cpu: "Intel Xeon", kernel: "5.15.158-2-pve", words: "intel_iommu=on,sm_on", active: true,
		},
		"Intel has it by default since 6.8":      {cpu: "Intel Xeon", kernel: newKernel, active: true},
		"a parameter disables Intel's":           {cpu: "Intel Xeon", kernel: datacentre.DefaultKernel, words: "intel_iommu=off"},
		"AMD's parameter has no effect on Intel": {cpu: "Intel Xeon", kernel: oldKernel, words: "amd_iommu=on"},
		"iommu=off":                              {cpu: "AMD EPYC", kernel: newKernel, words: "iommu=off"},
		"no parameter helps without firmware": {
			cpu:      "Intel Xeon",
			kernel:   newKernel,
			words:    "intel_iommu=on iommu=pt",
			firmware: datacentre.Firmware{IOMMUOff: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			boot := bootFiles{kernel: tc.kernel, commandLine: tc.words}.boot(
				datacentre.HostOptions{CPUModel: tc.cpu, Firmware: tc.firmware},
			)
			assert.Equal(t, tc.active, boot.IOMMU)
		})
	}
}

func TestDriverBinding(t *testing.T) {
	t.Parallel()

	const (
		gpu, audio, disk = "0000:01:00.0", "0000:01:00.1", "0000:09:00.0"
		ids              = "options vfio-pci ids=10de:27b0,10de:22bc disable_vga=1\n"
		softdeps         = "softdep nouveau pre: vfio-pci\nsoftdep snd_hda_intel pre: vfio-pci\n"
	)

	for name, tc := range map[string]struct {
		modprobe, words string
		early, late     []string
		off             bool
		gpu, audio      string
	}{
		"the kernel's drivers are the default": {gpu: "nouveau", audio: "snd_hda_intel"},
		"a blacklist leaves the GPU without":   {modprobe: "blacklist nouveau\n", audio: "snd_hda_intel"},
		"ids alone come too late": {
			modprobe: ids, late: []string{"vfio_pci"}, gpu: "nouveau", audio: "snd_hda_intel",
		},
		"ids and softdeps bind both": {modprobe: ids + softdeps, gpu: "vfio-pci", audio: "vfio-pci"},
		"a softdep of one module is enough": {
			modprobe: ids + "softdep nouveau pre: vfio-pci\n", gpu: "vfio-pci", audio: "vfio-pci",
		},
		"ids, a blacklist and a late module": {
			modprobe: ids + "blacklist nouveau\n", late: []string{"vfio_pci"}, gpu: "vfio-pci", audio: "snd_hda_intel",
		},
		"the initramfs' own list is early": {
			modprobe: ids, early: []string{"vfio-pci"}, gpu: "vfio-pci", audio: "vfio-pci",
		},
		"nothing loads vfio":       {modprobe: ids + "blacklist nouveau\nblacklist snd_hda_intel\n"},
		"install forbids":          {modprobe: "install nouveau /bin/false\n", audio: "snd_hda_intel"},
		"the command line forbids": {words: "modprobe.blacklist=nouveau,snd_hda_intel"},
		"the command line names ids": {
			words: "vfio-pci.ids=10de:27b0", modprobe: softdeps, gpu: "vfio-pci", audio: "snd_hda_intel",
		},
		"comments are ignored": {
			modprobe: "# blacklist nouveau\n#softdep nouveau pre: vfio-pci\n" + ids, gpu: "nouveau", audio: "snd_hda_intel",
		},
		"without IOMMU vfio takes nothing": {modprobe: ids + softdeps, off: true, gpu: "nouveau", audio: "snd_hda_intel"},
		"ids may name the subsystem": {
			modprobe: "options vfio-pci ids=10de:27b0:10de:16fa\n" + softdeps, gpu: "vfio-pci", audio: "snd_hda_intel",
		},
		"another subsystem is another device": {
			modprobe: "options vfio-pci ids=10de:27b0:1043:16fa\n" + softdeps, gpu: "nouveau", audio: "snd_hda_intel",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := datacentre.HostOptions{Firmware: datacentre.Firmware{IOMMUOff: tc.off}, PCI: []datacentre.PCIDevice{
				{
					Address: gpu, VendorID: "0x10de", DeviceID: "0x27b0", Driver: "nouveau",
					SubsystemVendor: "0x10de", SubsystemDevice: "0x16fa",
				},
				{Address: audio, VendorID: "0x10de", DeviceID: "0x22bc", Driver: "snd_hda_intel"},
				{Address: disk, VendorID: "0x144d", DeviceID: "0xa80a", Driver: "nvme"},
			}}
			boot := bootFiles{
				kernel: datacentre.DefaultKernel, commandLine: tc.words, modprobe: tc.modprobe, early: tc.early, late: tc.late,
			}.boot(h)

			assert.Equal(t, tc.gpu, boot.Drivers[gpu])
			assert.Equal(t, tc.audio, boot.Drivers[audio])
			assert.Equal(t, "nvme", boot.Drivers[disk])
		})
	}
}
