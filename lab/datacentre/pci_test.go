package datacentre_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

func pciFunction(address, ids, driver string, group int) datacentre.PCIDevice {
	return datacentre.PCIDevice{
		Address:         address,
		VendorID:        "0x" + ids[:4],
		DeviceID:        "0x" + ids[5:],
		SubsystemVendor: "0x10de",
		SubsystemDevice: "0x16fa",
		Class:           "0x030000",
		Driver:          driver, IOMMUGroup: group,
	}
}

// gpuHost has two equal GPUs in groups of their own, one in the boot disk's group, and two that share a group.
func gpuHost() datacentre.HostOptions {
	disk := pciFunction("0000:09:00.0", "144d:a80a", "nvme", 20)
	disk.Class, disk.BootDisk = "0x010802", true
	bridge := pciFunction("0000:00:01.0", "8086:4c01", "pcieport", 14)
	bridge.Class = "0x060400"

	return datacentre.HostOptions{Name: "pve1", Cores: 8, MemoryMiB: 16384, PCI: []datacentre.PCIDevice{
		bridge,
		pciFunction("0000:01:00.0", "10de:27b0", "nouveau", 14), pciFunction("0000:01:00.1", "10de:22bc", "snd_hda_intel", 14),
		pciFunction("0000:02:00.0", "10de:27b0", "nouveau", 15),
		pciFunction("0000:03:00.0", "10de:2230", "nouveau", 20), disk,
		pciFunction("0000:05:00.0", "10de:1eb8", "nouveau", 30), pciFunction("0000:06:00.0", "10de:1eb8", "nouveau", 30),
	}}
}

func openWithGPUs(t *testing.T, change func(*datacentre.HostOptions)) *datacentre.Datacentre {
	t.Helper()

	o, h := fastOptions(t), gpuHost()
	if change != nil {
		change(&h)
	}

	o.Hosts = []datacentre.HostOptions{h, {Name: "pve2"}}

	return open(t, o)
}

const wholeDevice = "id=10de:27b0,node=pve1,path=0000:01:00,iommugroup=14,subsystem-id=10de:16fa"

func pciMapping(entries ...string) datacentre.Config {
	c := datacentre.Config{}
	c.Set("map", entries...)

	return c
}

func TestPassthroughErrors(t *testing.T) {
	t.Parallel()

	off := func(h *datacentre.HostOptions) { h.Firmware.IOMMUOff = true }
	wrong := "PCI device mapping invalid (hardware probably changed): "

	for name, tc := range map[string]struct {
		mapping datacentre.Config
		hostpci string
		machine string
		change  func(*datacentre.HostOptions)
		want    string
		log     string
	}{
		"nothing": {mapping: pciMapping(wholeDevice), want: "OK"},
		"an unknown mapping": {
			hostpci: "mapping=gpu2", want: "PCI device mapping not found for 'gpu2'",
		},
		"a mapping of other hosts": {
			mapping: pciMapping("id=10de:27b0,node=pve2,path=0000:01:00"), want: "PCI device mapping not found for 'gpu'",
		},
		"another device": {
			mapping: pciMapping("id=10de:2684,node=pve1,path=0000:01:00,iommugroup=14,subsystem-id=10de:16fa"),
			want:    wrong + "'id' does not match for 'gpu' (10de:27b0 != 10de:2684)",
		},
		"another group": {
			mapping: pciMapping("id=10de:27b0,node=pve1,path=0000:01:00,iommugroup=3,subsystem-id=10de:16fa"),
			want:    wrong + "'iommugroup' does not match for 'gpu' (14 != 3)",
		},
		"no group": {
			mapping: pciMapping("id=10de:27b0,node=pve1,path=0000:01:00,subsystem-id=10de:16fa"),
			want:    wrong + "missing expected property 'iommugroup' for device '0000:01:00.0'",
		},
		"no subsystem": {
			mapping: pciMapping("id=10de:27b0,node=pve1,path=0000:01:00,iommugroup=14"),
			want:    wrong + "missing expected property 'subsystem-id' for device '0000:01:00.0'",
		},
		"an empty slot": {
			mapping: pciMapping("id=10de:27b0,node=pve1,path=0000:07:00,iommugroup=14,subsystem-id=10de:16fa"),
			want:    wrong + "pci device '0000:07:00.0' not found",
		},
		"unsupported mediated devices": {
			mapping: datacentre.Config{"map": wholeDevice, "mdev": "1"},
			want:    wrong + "'mdev' does not match for 'gpu' (0 != 1)",
		},
		"a group without an IOMMU": {
			mapping: pciMapping(wholeDevice),
			change:  off,
			want:    wrong + "unexpected property 'iommugroup' configured for device '0000:01:00.0'",
		},
		"no IOMMU": {
			mapping: pciMapping("id=10de:27b0,node=pve1,path=0000:01:00,subsystem-id=10de:16fa"),
			change:  off,
			want:    "cannot prepare PCI pass-through, IOMMU not present",
		},
		"PCI Express without q35": {mapping: pciMapping(wholeDevice), machine: "pc", want: "q35 machine model is not enabled"},
		"the boot disk's group": {
			mapping: pciMapping("id=10de:2230,node=pve1,path=0000:03:00,iommugroup=20,subsystem-id=10de:16fa"),
			want:    "start failed: QEMU exited with code 1",
			log:     "kvm: -device vfio-pci,host=0000:03:00.0: vfio 0000:03:00.0: group 20 is not viable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := openWithGPUs(t, tc.change)
			if tc.mapping != nil {
				d.Put(datacentre.PCIMappings, "gpu", tc.mapping)
			}

			config := datacentre.Config{"hostpci0": "mapping=gpu,pcie=1", "machine": "q35"}
			if tc.hostpci != "" {
				config["hostpci0"] = tc.hostpci
			}

			if tc.machine != "" {
				config["machine"] = tc.machine
			}

			requireOK(t, d)(d.CreateVM(root, "pve1", 100, basicVM(config)))

			upid, err := d.Start(root, "pve1", 100)
			assert.Equal(t, tc.want, exitStatus(t, d, upid, err))

			if tc.log != "" {
				assert.Contains(t, d.TaskLog(upid), tc.log)
			}
		})
	}
}

func TestPassthroughDevices(t *testing.T) {
	t.Parallel()

	d := openWithGPUs(t, nil)
	do, g := requireOK(t, d), newFakeGuests()
	d.SetGuests(g)

	for name, mapping := range map[string]datacentre.Config{
		"gpu": pciMapping(wholeDevice, "id=10de:27b0,node=pve1,path=0000:02:00,iommugroup=15,subsystem-id=10de:16fa"),
		"t4":  pciMapping("id=10de:1eb8,node=pve1,path=0000:05:00.0,iommugroup=30,subsystem-id=10de:16fa"),
		"t4b": pciMapping("id=10de:1eb8,node=pve1,path=0000:06:00.0,iommugroup=30,subsystem-id=10de:16fa"),
	} {
		d.Put(datacentre.PCIMappings, name, mapping)
	}

	for vmid, mapping := range map[int]string{100: "gpu", 101: "gpu", 102: "gpu", 103: "t4", 104: "t4b"} {
		do(d.CreateVM(root, "pve1", vmid, basicVM(datacentre.Config{"hostpci0": "mapping=" + mapping, "memory": "512"})))
	}

	do(d.Start(root, "pve1", 100))
	do(d.Start(root, "pve1", 101))

	first, _ := g.running(100)
	require.Len(t, first.PCI, 2, "a whole device is all its functions")
	assert.Equal(t, "0000:01:00.0", first.PCI[0].Address)
	assert.Equal(t, "0x10de", first.PCI[0].VendorID)

	second, _ := g.running(101)
	require.Len(t, second.PCI, 1)
	assert.Equal(t, "0000:02:00.0", second.PCI[0].Address, "the next of several alternatives")

	upid, err := d.Start(root, "pve1", 102)
	assert.Equal(t, "could not find a free device for 'hostpci0'", exitStatus(t, d, upid, err))

	do(d.Stop(root, "pve1", 100))
	do(d.Start(root, "pve1", 102))

	do(d.Start(root, "pve1", 103))

	upid, err = d.Start(root, "pve1", 104)
	assert.Equal(t, "start failed: QEMU exited with code 1", exitStatus(t, d, upid, err))
	assert.Contains(t, d.TaskLog(upid)[0], "vfio 0000:06:00.0: failed to open /dev/vfio/30: Device or resource busy")

	d.Put(datacentre.PCIMappings, "gpu", pciMapping(wholeDevice))

	upid, err = d.Start(root, "pve1", 100)
	assert.Equal(t, "PCI device '0000:01:00.0' already in use by VMID '102'", exitStatus(t, d, upid, err))
}
