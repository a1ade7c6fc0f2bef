package hostfacts_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

var gpu = spec.Device{Name: "rtx4000", Host: "pve1", PCI: "0000:01:00", Generation: "ada"}

// fixture is a prepared host with the GPU of a machine, what the plan places on it, and its facts.
type fixture struct {
	facts *hostfacts.Facts
	host  spec.Host
	needs hostfacts.Needs
}

func newFixture() *fixture {
	return &fixture{
		facts: enginetest.PreparedHost("pve1"),
		host: spec.Host{
			Name: "pve1",
			Path: "hosts[0]",
			Prep: &spec.Prep{IOMMU: true, Repositories: "keep", Reboot: "never"},
			GPUs: []spec.Device{gpu},
		},
		needs: hostfacts.Needs{Nodes: []spec.Node{{
			VM: spec.VM{
				Name: "one-gpu-1", Host: "pve1", VMID: 4000, Cores: 8, MemoryMiB: 32768, DiskGiB: 100, Datastore: "local-zfs",
			},
			GPUs: []spec.Device{gpu},
		}}},
	}
}

func (s *fixture) device(address string) *hostfacts.Device {
	i := slices.IndexFunc(s.facts.Devices, func(d hostfacts.Device) bool { return d.Address == address })

	return &s.facts.Devices[i]
}

// addTwin adds another GPU of the same kind to the host.
func (s *fixture) addTwin(group, driver string) {
	s.facts.Devices = append(s.facts.Devices, hostfacts.Device{
		Address: "0000:02:00.0", Vendor: "10de", Device: "27b0", Class: "030000", Group: group, Driver: driver,
	})
}

// setGeneration sets the configured generation of the GPU, and the driver of its machine.
func (s *fixture) setGeneration(generation, flavour string) {
	s.host.GPUs[0].Generation, s.needs.Nodes[0].GPUs[0].Generation = generation, generation
	s.needs.Nodes[0].Template.Version = "v1.14.4"
	s.needs.Nodes[0].Template.Driver = spec.Driver{Flavour: flavour, Track: talos.TrackProduction}
}

// giveDevice gives the machine a device of a kind instead of its GPU.
func (s *fixture) giveDevice(pci string, kind spec.DeviceKind) {
	device := spec.Device{Name: "x", Host: "pve1", PCI: pci, Kind: kind}
	s.host.GPUs, s.host.Devices = nil, []spec.Device{device}
	s.needs.Nodes[0].GPUs, s.needs.Nodes[0].Devices = nil, s.host.Devices
}

// giveUSB gives the machine a USB device instead of its GPU, on a host that has three.
func (s *fixture) giveUSB(device spec.USB) {
	s.giveDevice("", spec.USBDevice)
	s.host.Devices[0].USB = device
	s.facts.USB = []hostfacts.USBDevice{
		{Port: "1-4", ID: "10c4:ea60", Name: "Silicon Labs CP2102N"},
		{Port: "1-7.1", ID: "0658:0200"},
		{Port: "1-7.2", ID: "0658:0200"},
	}
}

// addIntelGPU adds an integrated GPU with a virtual function.
func (s *fixture) addIntelGPU(driver string) {
	for _, d := range []hostfacts.Device{
		{Address: "0000:00:02.0", Group: "1", Driver: driver}, {Address: "0000:00:02.1", Group: "30", Driver: driver},
	} {
		d.Vendor, d.Device, d.Class = "8086", "4c90", "030000"
		s.facts.Devices = append(s.facts.Devices, d)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change   func(s *fixture)
		problems []string
		warnings []string
	}{
		"all is well": {},
		"a USB device, on a host without an IOMMU": {
			change: func(s *fixture) {
				s.giveUSB(spec.USB{ID: "10c4:ea60"})
				s.host.Prep, s.facts.IOMMU = nil, hostfacts.IOMMU{}
			},
		},
		"a USB device at its port": {change: func(s *fixture) { s.giveUSB(spec.USB{ID: "0658:0200", Port: "1-7.2"}) }},
		"a USB device that is not plugged in": {
			change: func(s *fixture) { s.giveUSB(spec.USB{ID: "051d:0002"}) },
			problems: []string{"hosts[0].devices.usb.id: pve1 has no USB device 051d:0002: it has 10c4:ea60 at 1-4 (Silicon Labs CP2102N), " +
				"0658:0200 at 1-7.1, 0658:0200 at 1-7.2; plug the device in, or set where it is"},
		},
		"a USB device that is not plugged in, as no other is": {
			change: func(s *fixture) { s.giveUSB(spec.USB{ID: "051d:0002", Port: "1-1"}); s.facts.USB = nil },
			problems: []string{"hosts[0].devices.usb.port: pve1 has no USB device at port 1-1: it has none besides hubs; is the device " +
				"plugged in? `lsusb` there lists the devices"},
		},
		"another USB device at the port": {
			change: func(s *fixture) { s.giveUSB(spec.USB{ID: "10c4:ea60", Port: "1-7.1"}) },
			problems: []string{"hosts[0].devices.usb.id: 10c4:ea60 is not the USB device at port 1-7.1 of pve1, which is 0658:0200 at 1-7.1; " +
				"set its id, or the port of the device"},
		},
		"two USB devices with the id": {
			change: func(s *fixture) { s.giveUSB(spec.USB{ID: "0658:0200"}) },
			problems: []string{"hosts[0].devices.usb.port: is missing, and pve1 has 2 USB devices 0658:0200, of which Proxmox would take " +
				"any: 0658:0200 at 1-7.1, 0658:0200 at 1-7.2; set the port of the device"},
		},
		"a disk controller with its driver on the host": {
			change: func(s *fixture) { s.giveDevice("0000:00:17.0", spec.OtherDevice) },
		},
		"an Intel GPU with its driver on a host that is not prepared": {
			change: func(s *fixture) {
				s.host.Prep = nil
				s.addIntelGPU("i915")
				s.giveDevice("0000:00:02.0", spec.IntelGPU)
			},
			problems: []string{"hosts[0].devices.pci: 0000:00:02.0 on pve1 is bound to i915; set prep: {} to have it bound"},
		},
		"a virtual function of it": {
			change: func(s *fixture) {
				s.addIntelGPU("i915")
				s.giveDevice("0000:00:02.1", spec.IntelGPU)
			},
		},
		"a virtual function that the host has not created": {
			change: func(s *fixture) { s.giveDevice("0000:00:02.1", spec.IntelGPU) },
			problems: []string{"hosts[0].devices.pci: 0000:00:02.1 is not there on pve1: `lspci -Dnn` there lists its devices; a virtual function (SR-IOV) " +
				"is there once the host has created it (sriov_numvfs)"},
		},
		"one function of a card that shares its group with the other": {
			change: func(s *fixture) {
				s.addIntelGPU("")
				s.facts.Devices[len(s.facts.Devices)-1].Group = "1"
				s.giveDevice("0000:00:02.0", spec.OtherDevice)
			},
			problems: []string{"hosts[0].devices.pci: 0000:00:02.0 on pve1 shares IOMMU group 1 with 0000:00:02.1"},
		},
		"a GPU of another vendor": {
			change: func(s *fixture) {
				s.addIntelGPU("")
				s.giveDevice("0000:00:02.0", spec.AMDGPU)
			},
			problems: []string{"hosts[0].devices.pci: 0000:00:02.0 on pve1 is not an AMD GPU but 0000:00:02.0"},
		},
		"an NVIDIA GPU among the devices": {
			change:   func(s *fixture) { s.giveDevice("0000:01:00", spec.OtherDevice) },
			problems: []string{"hosts[0].devices.pci: 0000:01:00 on pve1 is 0000:01:00.0 VGA compatible controller"},
		},
		"a GPU that is bound to the host's driver is what the preparation fixes": {
			change: func(s *fixture) { s.device("0000:01:00.0").Driver = "nouveau" },
		},
		"and is a problem where the host is not prepared": {
			change: func(s *fixture) {
				s.host.Prep = nil
				s.device("0000:01:00.0").Driver = "nouveau"
			},
			problems: []string{"hosts[0].gpus.pci: 0000:01:00.0 on pve1 is bound to nouveau; set prep: {} to have it bound to vfio-pci, or do so manually and reboot"},
		},
		"a generation whose driver drives the card as well": {
			change: func(s *fixture) { s.setGeneration("turing", talos.FlavourOpen) },
			warnings: []string{`hosts[0].gpus.generation: "turing" is not that of 0000:01:00 on pve1, NVIDIA Corporation AD104GL ` +
				"[RTX 4000 SFF Ada Generation]; set ada"},
		},
		"a generation whose driver does not drive the card": {
			change: func(s *fixture) {
				s.device("0000:01:00.0").Name = "VGA compatible controller: NVIDIA Corporation GP104 [GeForce GTX 1080]"
				s.setGeneration("ada", talos.FlavourOpen)
			},
			problems: []string{`hosts[0].gpus.generation: "ada" is not that of 0000:01:00 on pve1, NVIDIA Corporation GP104 ` +
				"[GeForce GTX 1080], which the driver of one-gpu-1 (open production) does not drive; set pascal"},
		},
		"a request that states no generation": {
			change: func(s *fixture) { s.setGeneration("", "") },
		},
		"a card that the host has no name for": {
			change: func(s *fixture) {
				s.device("0000:01:00.0").Name = "VGA compatible controller: NVIDIA Corporation Device 2bb4"
				s.setGeneration("blackwell", talos.FlavourOpen)
			},
		},
		"another slot": {
			change: func(s *fixture) {
				s.device("0000:01:00.0").Address = "0000:41:00.0"
				s.device("0000:01:00.1").Address = "0000:41:00.1"
			},
			problems: []string{"hosts[0].gpus.pci: 0000:01:00 is not there on pve1: its NVIDIA GPUs are 0000:41:00.0 VGA compatible controller: NVIDIA Corporation AD104GL " +
				"[RTX 4000 SFF Ada Generation] (driver vfio-pci); set where it is now"},
		},
		"no GPU at all": {
			change:   func(s *fixture) { s.facts.Devices = s.facts.Devices[:1] },
			problems: []string{"hosts[0].gpus.pci: 0000:01:00 is not there on pve1: it has no NVIDIA GPU; `lspci -nn` lists its devices: is the card seated and powered?"},
		},
		"another device": {
			change: func(s *fixture) {
				s.host.GPUs = []spec.Device{{Name: "x", PCI: "0000:00:17.0"}}
				s.needs.Nodes[0].GPUs = s.host.GPUs
			},
			problems: []string{"hosts[0].gpus.pci: 0000:00:17.0 on pve1 is not an NVIDIA GPU but 0000:00:17.0 SATA controller: AMD FCH (driver ahci): its NVIDIA GPUs are 0000:01:00.0"},
		},
		"the audio function alone": {
			change: func(s *fixture) {
				s.host.GPUs = []spec.Device{{Name: "x", PCI: "0000:01:00.1"}}
			},
			problems: []string{"hosts[0].gpus.pci: 0000:01:00.1 on pve1 is not an NVIDIA GPU but 0000:01:00.1 Audio device"},
		},
		"a group shared with the boot disk's controller": {
			change:   func(s *fixture) { s.device("0000:00:17.0").Group = "12" },
			problems: []string{"hosts[0].gpus.pci: 0000:01:00 on pve1 shares IOMMU group 12 with 0000:00:17.0 SATA controller: AMD FCH (driver ahci), which the host would lose; use another slot"},
		},
		"a group shared with bridges": {
			change: func(s *fixture) {
				d := s.device("0000:00:17.0")
				d.Group, d.Class = "12", "060400"
			},
		},
		"functions of one GPU in two groups": {
			change: func(s *fixture) { s.device("0000:01:00.1").Group = "13" },
		},
		"the second function's group is shared": {
			change:   func(s *fixture) { s.device("0000:01:00.1").Group = "3" },
			problems: []string{"hosts[0].gpus.pci: 0000:01:00 on pve1 shares IOMMU group"},
		},
		"two GPUs of one machine in one group": {change: twoGPUs(true)},
		"two GPUs of two machines in one group": {
			change: twoGPUs(false),
			problems: []string{
				"hosts[0].gpus.pci: 0000:01:00 on pve1 shares IOMMU group 12 with 0000:02:00.0",
				"hosts[0].gpus.pci: 0000:02:00 on pve1 shares IOMMU group 12 with 0000:01:00.0",
			},
		},
		"a twin that is not for machines": {
			change: func(s *fixture) { s.addTwin("15", "") },
			warnings: []string{
				"hosts[0].gpus.pci: 0000:01:00 on pve1 has the same ids as 0000:02:00.0, which is bound to vfio-pci along with it",
			},
		},
		"a twin on a host that is not prepared by ids": {
			change: func(s *fixture) {
				s.host.Prep = nil
				s.addTwin("15", "")
			},
		},
		"the IOMMU is off in the firmware": {
			change: func(s *fixture) {
				s.facts.IOMMU = hostfacts.IOMMU{}
				s.device("0000:01:00.0").Group = ""
			},
			problems: []string{"hosts[0].gpus: cannot be passed through on pve1: its IOMMU is switched off in the firmware (neither /sys/firmware/acpi/tables/IVRS nor DMAR is there): switch on IOMMU (AMD-Vi"},
		},
		"the same without GPUs is a warning": {
			change: func(s *fixture) {
				s.facts.IOMMU, s.facts.System.CPUVendor = hostfacts.IOMMU{}, "intel"
				s.host.GPUs, s.needs.Nodes[0].GPUs = nil, nil
			},
			warnings: []string{"hosts[0].prep.iommu: prepares pve1 for passthrough, but its IOMMU is switched off in the firmware (neither /sys/firmware/acpi/tables/IVRS nor DMAR is there): switch on VT-d"},
		},
		"the kernel does not use the IOMMU, and the preparation fixes it": {
			change: func(s *fixture) { s.facts.IOMMU.Groups = 0 },
		},
		"the kernel does not use the IOMMU of a host that is not prepared": {
			change: func(s *fixture) {
				s.host.Prep = nil
				s.facts.IOMMU, s.facts.System.CPUVendor = hostfacts.IOMMU{Firmware: []string{"DMAR"}}, "intel"
			},
			problems: []string{"hosts[0].gpus: cannot be passed through: pve1 runs without its IOMMU; set prep: {} to have it prepared, or add intel_iommu=on iommu=pt to /etc/kernel/cmdline and reboot"},
		},
		"an old Proxmox VE": {
			change:   func(s *fixture) { s.facts.System.PVE = "7.4-3" },
			problems: []string{"hosts[0]: pve1 runs Proxmox VE 7.4-3; upgrade it to 8 or later: pve7to8 --full"},
		},
		"the oldest Proxmox VE that is supported": {
			change:   func(s *fixture) { s.facts.System.PVE = "8.0.2" },
			warnings: []string{"hosts[0]: pve1 runs Proxmox VE 8.0.2, which has had no fixes since 2026-08-31; upgrade it: pve8to9 --full shows what prevents it"},
		},
		"no Proxmox VE": {
			change:   func(s *fixture) { s.facts.System.PVE = "" },
			problems: []string{"hosts[0]: pve1 does not say which Proxmox VE it runs"},
		},
		"what the host's script cannot do": {
			change: func(s *fixture) {
				s.facts.Prep.Problems = []string{"/etc/kernel/cmdline has two lines"}
			},
			problems: []string{"hosts[0].prep: cannot be carried out on pve1: /etc/kernel/cmdline has two lines"},
		},
		"a pool that is not healthy": {
			change:   func(s *fixture) { s.facts.ZFS.Pools[0].Health = "DEGRADED" },
			problems: []string{"hosts[0]: the ZFS pool rpool of pve1 is DEGRADED: zpool status -x rpool says why"},
		},
		"a cache below the recommended size": {
			change:   func(s *fixture) { s.facts.ZFS.ARCWanted = 1 << 30 },
			warnings: []string{"hosts[0].prep.zfsArcMaxGiB: gives ZFS' cache 1.0 GiB on pve1; 2 GiB and 1 more for each TiB of its pools are recommended (4 GiB)"},
		},
		"a machine with more cores than the host": {
			change:   func(s *fixture) { s.needs.Nodes[0].Cores = 65 },
			problems: []string{"hosts[0]: pve1 has 64 cores, and one-gpu-1 is planned with 65, which Proxmox does not start"},
			warnings: []string{"hosts[0]: 65 cores are planned on pve1, which has 64"},
		},
		"more memory than there is": {
			change: func(s *fixture) { s.needs.Nodes[0].MemoryMiB = 300 << 10 },
			problems: []string{
				"hosts[0]: pve1 has 262144 MiB of memory, and 307200 MiB are planned on it beside 0 MiB of guests that run there",
			},
		},
		"more memory than there is beside others' guests": {
			change: func(s *fixture) {
				s.needs.Nodes[0].MemoryMiB = 200 << 10
				s.facts.Containers = []hostfacts.Guest{
					{VMID: "500", Status: "running", Memory: 100 << 30}, {VMID: "501", Status: "stopped", Memory: 100 << 30},
				}
			},
			problems: []string{"204800 MiB are planned on it beside 102400 MiB of guests that run there"},
		},
		"memory that only just suffices beside ZFS' cache": {
			change:   func(s *fixture) { s.needs.Nodes[0].MemoryMiB = 250 << 10 },
			warnings: []string{"and ZFS' cache may take 16384 MiB; lower hosts[].prep.zfsArcMaxGiB"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newFixture()
			if test.change != nil {
				test.change(s)
			}

			found := hostfacts.Check(s.facts, s.host, s.needs)
			assertProblems(t, test.problems, found.Found.Errors())
			assertProblems(t, test.warnings, found.Found.Warnings())
		})
	}
}

// TestMistaken: if another host answers, that is the only problem, at the address.
func TestMistaken(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ own, node, want string }{
		"the host that is meant": {"pve1", "pve1", ""},
		"another host":           {"pve2", "pve2", "hosts[0].address: 10.0.0.2 is not pve1: the own name of the host that answers there is pve2, and Proxmox VE knows it as pve2; set the address of pve1, or the host that answers"},
		"a host that was renamed": {
			"pve1", "pve9", "the own name of the host that answers there is pve1, and Proxmox VE knows it as pve9",
		},
		"another name of its own": {
			"spare", "pve1", "the own name of the host that answers there is spare, and Proxmox VE knows it as pve1",
		},
		"no node of Proxmox":    {"pve1", "", "and it is not a node of Proxmox VE now (does pve-cluster run there?)"},
		"a host without a name": {"", "pve1", "the own name of the host that answers there is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newFixture()
			facts, h := s.facts, s.host
			facts.System.Hostname, facts.System.Node = test.own, test.node
			h.Address = netip.MustParseAddr("10.0.0.2")

			if test.want == "" {
				assert.Empty(t, hostfacts.CheckIdentity(facts, h))

				return
			}

			facts.Prep.Owner, facts.Prep.Changes, facts.System.PVE = "talos-proxmox/prod", []string{"/etc/kernel/cmdline"}, "7.4"
			found := hostfacts.Check(facts, h, s.needs)
			assertProblems(t, []string{test.want}, found.Found.Errors())
			assert.Empty(t, found.Changes, "the changes are another host's")
			assert.Empty(t, hostfacts.CheckOwner(facts, h, "talos-proxmox/lab"), "the problem is reported once")
		})
	}
}

func TestNeedsNameAllClusters(t *testing.T) {
	t.Parallel()

	plan := &spec.Plan{Clusters: []spec.Cluster{{Name: "two"}, {Name: "one"}}}
	assert.Equal(t, []string{"one", "two"}, hostfacts.PlannedNeeds(plan, "pve1").Clusters)
}

func twoGPUs(together bool) func(s *fixture) {
	return func(s *fixture) {
		s.addTwin("12", "vfio-pci")

		second := spec.Device{Name: "rtx4000", Host: "pve1", PCI: "0000:02:00"}

		s.host.GPUs = append(s.host.GPUs, second)
		if together {
			s.needs.Nodes[0].GPUs = append(s.needs.Nodes[0].GPUs, second)
		} else {
			s.needs.Nodes = append(s.needs.Nodes, spec.Node{VM: spec.VM{Name: "two", Host: "pve1"}, GPUs: []spec.Device{second}})
		}
	}
}

// assertProblems expects exactly these problems, each by a part of its text, in any order.
func assertProblems(t *testing.T, expected []string, problems problem.List) {
	t.Helper()
	require.Len(t, problems, len(expected), problems.Error())

	for _, text := range expected {
		assert.Contains(t, problems.Error(), text)
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()

	s := newFixture()
	facts, h := s.facts, s.host
	assert.Empty(t, hostfacts.CheckOwner(facts, h, "talos-proxmox/lab"), "no owner")
	facts.Prep.Owner = "talos-proxmox/lab"
	assert.Empty(t, hostfacts.CheckOwner(facts, h, "talos-proxmox/lab"))
	assert.Contains(
		t, hostfacts.CheckOwner(facts, h, "talos-proxmox/prod").Error(),
		"hosts[0].prep: is set, but pve1 is prepared by stack talos-proxmox/lab; take prep away in one of the two",
	)
	h.Prep = nil
	assert.Empty(t, hostfacts.CheckOwner(facts, h, "talos-proxmox/prod"), "a host without prep")
}

func TestAdvice(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		pve  string
		pool hostfacts.Pool
		want []string
	}{
		"nothing to improve": {
			"9.1.1",
			hostfacts.Pool{Name: "tank", Ashift: 12, Compression: "lz4", Xattr: "sa", Vdevs: []string{"mirror-0", "mirror-1"}},
			nil,
		},
		"on is sa from 9 on": {
			"9.1.1", hostfacts.Pool{Name: "tank", Ashift: 0, Compression: "on", Xattr: "on", Vdevs: []string{"mirror-0"}}, nil,
		},
		"on is not sa before 9": {
			"8.4.1",
			hostfacts.Pool{Name: "tank", Ashift: 13, Compression: "zstd", Xattr: "on", Vdevs: []string{"mirror-0"}},
			[]string{"pool tank: xattr is on; attributes kept with the file save a read each: zfs set xattr=sa tank"},
		},
		"everything": {"9.1.1", hostfacts.Pool{
			Name: "tank", Ashift: 9, Compression: "off", Xattr: "dir", Vdevs: []string{"raidz1-0", "sdd"},
		}, []string{
			"pool tank: ashift is 9",
			"pool tank: compression is off; it saves room and is faster than the disks: zfs set compression=lz4 tank",
			"pool tank: xattr is dir",
			"pool tank: raidz1-0 is not a mirror",
			"pool tank: sdd stands alone, and its data is lost with it: zpool attach tank sdd <second disk>",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newFixture()
			test.pool.Health = "ONLINE"
			s.facts.System.PVE, s.facts.ZFS.Pools = test.pve, []hostfacts.Pool{test.pool}
			advice := hostfacts.Check(s.facts, s.host, s.needs).Advice
			require.Len(t, advice, len(test.want), advice)

			for i, text := range test.want {
				assert.Contains(t, advice[i], text)
			}
		})
	}
}

func TestUnready(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(*fixture)
		want   []string
	}{
		"ready": {func(*fixture) {}, nil},
		"a reboot is pending": {func(s *fixture) {
			s.facts.Prep.Pending, s.facts.Prep.Changes, s.facts.Prep.ChangedInBoot = []string{
				"the kernel runs without iommu=pt",
			}, []string{"reboot"}, "boot-2"
		}, []string{"the kernel runs without iommu=pt"}},
		"a reboot did not help": {
			func(s *fixture) { s.facts.Prep.Pending = []string{"the kernel runs without iommu=pt"} },
			[]string{"the kernel runs without iommu=pt", "the host was rebooted since its last change, and that did not help"},
		},
		"a file was changed manually": {
			func(s *fixture) { s.facts.Prep.Changes = []string{"/etc/modprobe.d/vfio.conf"} },
			[]string{"the host is not as it was prepared: /etc/modprobe.d/vfio.conf"},
		},
		"the kernel has no groups": {
			func(s *fixture) { s.device("0000:01:00.0").Group = "" },
			[]string{"0000:01:00.0 has no IOMMU group"},
		},
		"the group is shared since": {
			func(s *fixture) { s.device("0000:00:17.0").Group = "12" },
			[]string{"shares IOMMU group 12"},
		},
		"the GPU is no longer where it": {
			func(s *fixture) { s.facts.Devices = s.facts.Devices[:1] }, []string{"0000:01:00 is not there"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newFixture()
			test.change(s)
			reasons := hostfacts.NotReadyReasons(s.facts, s.host, s.needs)
			require.Len(t, reasons, len(test.want), reasons)

			for i, text := range test.want {
				assert.Contains(t, reasons[i], text)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()

	good, err := json.Marshal(enginetest.PreparedHost("pve1"))
	require.NoError(t, err)
	facts, err := hostfacts.Parse(good)
	require.NoError(t, err)
	assert.Equal(t, enginetest.PreparedHost("pve1"), facts)

	for document, want := range map[string]string{
		"Welcome to pve1":            "are invalid",
		"{}":                         "have format 0 and not 1",
		`{"format":2}`:               "have format 2 and not 1: use the talosops and the program of one version",
		`{"format":1,"system":{}}`:   "name neither memory nor cores",
		`{"format":1,"devices":"x"}`: "are invalid",
	} {
		_, err := hostfacts.Parse([]byte(document))
		require.ErrorContains(t, err, want)
	}
}
