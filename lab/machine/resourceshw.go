package machine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"

	"proxmox-talos/lab/datacentre"
)

const mebibyte = 1 << 20

// partition is a volume on the system disk.
type partition struct {
	label, device, mount string
	size                 uint64
	index                int
}

// volumes are the partitions of the system disk: fixed sizes, and the rest for EPHEMERAL. Its growth to the disk's size is Talos' own.
func (m *machine) volumes() []partition {
	d, ok := m.systemDisk()
	if !ok {
		return nil
	}

	list := []partition{
		{label: "EFI", index: 1, size: 2 * 1024 * mebibyte},
		{label: "META", index: 2, size: mebibyte},
		{label: "STATE", index: 3, size: 100 * mebibyte, mount: "/system/state"},
	}

	rest := uint64(d.SizeBytes)

	for _, v := range list {
		rest -= min(rest, v.size)
	}

	list = append(list, partition{label: constants.EphemeralPartitionLabel, index: 4, size: rest - min(rest, 2*mebibyte), mount: "/var"})
	for i := range list {
		list[i].device = fmt.Sprintf("/dev/%s%d", d.name, list[i].index)
	}

	return list
}

func (m *machine) describeHardware() []resource.Resource {
	list := []resource.Resource{
		filled(hardware.NewSystemInformation(hardware.SystemInformationID), func(r *hardware.SystemInformation) {
			s := r.TypedSpec()
			s.Manufacturer, s.ProductName, s.Version, s.UUID, s.WakeUpType = "QEMU", "Standard PC (Q35 + ICH9, 2009)", "pc-q35-10.1", m.hw.UUID, "Power Switch"
		}),
		filled(hardware.NewProcessorInfo("CPU-0"), func(r *hardware.Processor) {
			s := r.TypedSpec()
			s.Socket, s.Manufacturer, s.ProductName, s.MaxSpeed, s.BootSpeed = "CPU 0", "QEMU", "pc-q35-10.1", 2000, 2000
			s.CoreCount, s.CoreEnabled, s.ThreadCount, s.Status = uint32(m.hw.Cores), uint32(m.hw.Cores), uint32(m.hw.Cores), 65
		}),
		filled(hardware.NewMemoryModuleInfo("DIMM-0"), func(r *hardware.MemoryModule) {
			r.TypedSpec().Size, r.TypedSpec().DeviceLocator, r.TypedSpec().Manufacturer = uint32(m.hw.MemoryMiB), "DIMM 0", "QEMU"
		}),
	}

	for _, p := range slices.Concat(m.virtualPCI(), m.hw.PCI) {
		list = append(list, m.pciDevice(p))
	}

	for _, d := range m.blockDevices() {
		list = append(list, d.resource(), filled(block.NewDevice(block.NamespaceName, d.name), func(r *block.Device) {
			r.TypedSpec().Type, r.TypedSpec().DevicePath = block.DeviceTypeDisk, "/dev/"+d.name
		}))
	}

	return slices.Concat(list, m.describeVolumes(), m.describeUserVolumes())
}

// resource is the disk as a resource.
func (d blockDevice) resource() *block.Disk {
	return filled(block.NewDisk(block.NamespaceName, d.name), func(r *block.Disk) {
		s := r.TypedSpec()
		s.DevPath, s.Size, s.PrettySize, s.IOSize, s.SectorSize = "/dev/"+d.name, uint64(d.SizeBytes), prettySize(uint64(d.SizeBytes)), 512, 512
		s.CDROM, s.Readonly, s.Model, s.BusPath, s.SubSystem, s.Transport = d.CDROM, d.CDROM, d.model(), d.busPath(), "/sys/class/block", d.transport()
	})
}

func (m *machine) describeVolumes() []resource.Resource {
	d, ok := m.systemDisk()
	if !ok {
		return nil
	}

	list := []resource.Resource{filled(block.NewSystemDisk(block.NamespaceName, block.SystemDiskID), func(r *block.SystemDisk) {
		r.TypedSpec().DiskID, r.TypedSpec().DevPath = d.name, "/dev/"+d.name
	})}

	for _, v := range m.volumes() {
		list = append(list, filled(block.NewDiscoveredVolume(block.NamespaceName, strings.TrimPrefix(v.device, "/dev/")), func(r *block.DiscoveredVolume) {
			s := r.TypedSpec()
			s.DevPath, s.Type, s.Parent, s.ParentDevPath, s.Size, s.PrettySize = v.device, "partition", d.name, "/dev/"+d.name, v.size, prettySize(v.size)
			s.PartitionLabel, s.PartitionIndex, s.SectorSize, s.IOSize = v.label, uint(v.index), 512, 512

			if v.mount != "" {
				s.Name, s.Label = "xfs", v.label
			}
		}))

		if v.mount != "" {
			list = append(list, filled(block.NewMountStatus(block.NamespaceName, v.label), func(r *block.MountStatus) {
				s := r.TypedSpec()
				s.Spec.VolumeID, s.Source, s.Target, s.Filesystem = v.label, v.device, v.mount, block.FilesystemTypeXFS
			}))
		}

		list = append(list, filled(block.NewVolumeStatus(block.NamespaceName, v.label), func(r *block.VolumeStatus) {
			s := r.TypedSpec()
			s.Phase, s.Type, s.Location, s.ParentLocation, s.PartitionIndex = block.VolumePhaseReady, block.VolumeTypePartition, v.device, "/dev/"+d.name, v.index
			s.Size, s.PrettySize, s.MountLocation = v.size, prettySize(v.size), v.mount

			if v.mount != "" {
				s.Filesystem = block.FilesystemTypeXFS
			}
		}))
	}

	return list
}

func prettySize(bytes uint64) string {
	if bytes >= 1e9 {
		return fmt.Sprintf("%.0f GB", float64(bytes)/1e9)
	}

	return fmt.Sprintf("%.0f MB", float64(bytes)/1e6)
}

// agentInterfaces are what the QEMU guest agent reports; the caller holds the lock.
func (m *machine) agentInterfaces() []datacentre.AgentInterface {
	list := []datacentre.AgentInterface{{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}}

	for _, l := range m.net.links {
		list = append(list, datacentre.AgentInterface{Name: l.name, MAC: l.mac, Addresses: l.addresses})
	}

	for vip := range m.vips {
		if len(list) > 1 {
			a := netip.MustParseAddr(vip)
			list[1].Addresses = append(append([]netip.Prefix(nil), list[1].Addresses...), netip.PrefixFrom(a, a.BitLen()))
		}
	}

	return list
}
