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

// Resources returns the system disk and the volumes as a release shows them; the configuration is nil in maintenance
// mode.
func (ds *Disks) Resources(cfg config.Config, release talos.Release) []resource.Resource {
	list := ds.volumeResources(slices.Concat(ds.partitions(), ds.nestedVolumes(cfg, release), ds.userVolumes(cfg)))

	if d, ok := ds.System(); ok {
		list = append(list, resources.WithSpec(block.NewSystemDisk(
			block.NamespaceName, block.SystemDiskID,
		), func(r *block.SystemDisk) {
			r.TypedSpec().DiskID, r.TypedSpec().DevPath = d.Name, "/dev/"+d.Name
		}))
	}

	return list
}

// resource returns the disk as a resource.
func (d Device) resource() *block.Disk {
	return resources.WithSpec(block.NewDisk(block.NamespaceName, d.Name), func(r *block.Disk) {
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

func prettySize(bytes uint64) string {
	if bytes >= 1e9 {
		return fmt.Sprintf("%.0f GB", float64(bytes)/1e9)
	}

	return fmt.Sprintf("%.0f MB", float64(bytes)/1e6)
}
