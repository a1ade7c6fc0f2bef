package disks

import (
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/resources"
)

// Resources are the system disk and the volumes, as a release shows it; the configuration is nil in maintenance mode.
func (ds *Disks) Resources(cfg config.Config, release talos.Release) []resource.Resource {
	return slices.Concat(
		ds.systemVolumes(), volumeResources(ds.nestedVolumes(cfg, release)), volumeResources(ds.userVolumes(cfg)),
	)
}

// resource is the disk as a resource.
func (d Device) resource() *block.Disk {
	return resources.Filled(block.NewDisk(block.NamespaceName, d.Name), func(r *block.Disk) {
		s := r.TypedSpec()
		s.DevPath, s.Size, s.PrettySize, s.IOSize, s.SectorSize = "/dev/"+d.Name, uint64(d.SizeBytes), prettySize(
			uint64(d.SizeBytes),
		), 512, 512
		s.CDROM = d.CDROM
		s.Readonly = d.CDROM
		s.Model = d.model()
		s.BusPath = d.busPath()
		s.SubSystem = "/sys/class/block"
		s.Transport = d.transport()
	})
}

func (ds *Disks) systemVolumes() []resource.Resource {
	d, ok := ds.System()
	if !ok {
		return nil
	}

	list := []resource.Resource{resources.Filled(block.NewSystemDisk(
		block.NamespaceName, block.SystemDiskID,
	), func(r *block.SystemDisk) {
		r.TypedSpec().DiskID, r.TypedSpec().DevPath = d.Name, "/dev/"+d.Name
	})}

	for _, v := range ds.Partitions() {
		list = append(list, resources.Filled(block.NewVolumeStatus(
			block.NamespaceName, v.label,
		), func(r *block.VolumeStatus) {
			s := r.TypedSpec()
			s.Phase = block.VolumePhaseReady
			s.Type = block.VolumeTypePartition
			s.Location = v.Device
			s.ParentLocation = "/dev/" + d.Name
			s.PartitionIndex = v.index
			s.Size, s.PrettySize, s.MountLocation = v.Size, prettySize(v.Size), v.Mount

			if v.Mount != "" {
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
