package disks

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/resources"
)

// volume is a volume of Talos or of the configuration.
type volume struct {
	id        string
	kind      block.VolumeType
	disk      Device
	partition int
	size      uint64 // 0 = that of the disk
	mount     string // mount point of Talos' own partitions
	problem   string // why it is missing; empty = ready
}

// device returns the volume's device; empty for a directory.
func (v volume) device() string {
	if v.disk.Name == "" {
		return ""
	}

	return fmt.Sprintf("/dev/%s%d", v.disk.Name, v.partition)
}

// userVolumes returns the volumes of the configuration with their disks.
func (ds *Disks) userVolumes(cfg config.Config) []volume {
	if cfg == nil {
		return nil
	}

	var list []volume

	for _, doc := range cfg.UserVolumeConfigs() {
		v := volume{
			id: constants.UserVolumePrefix + doc.Name(), kind: doc.Type().ValueOr(block.VolumeTypePartition), partition: 1,
		}

		if v.kind != block.VolumeTypeDirectory {
			v.disk, v.problem = ds.volumeDisk(doc.Provisioning())
		}

		list = append(list, v)
	}

	return list
}

// volumeDisk returns the first disk that matches a volume's selector and is large enough.
func (ds *Disks) volumeDisk(wanted config.VolumeProvisioningConfig) (Device, string) {
	expression, ok := wanted.DiskSelector().Get()
	if !ok {
		return Device{}, "no disks matched selector for volume"
	}

	var small bool

	for _, d := range ds.devices {
		if d.CDROM || !ds.matches(expression, d) {
			continue
		}

		if minimum, set := wanted.MinSize().Get(); set && uint64(d.SizeBytes) < minimum {
			small = true

			continue
		}

		return d, ""
	}

	if small {
		return Device{}, "no disks matched for volume: the matched disks have not enough space"
	}

	return Device{}, "no disks matched selector for volume"
}

func (ds *Disks) matches(expression cel.Expression, d Device) bool {
	spec := &blockpb.DiskSpec{}
	if err := proto.ResourceSpecToProto(d.resource(), spec); err != nil {
		return false
	}

	matches, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{
		"disk": spec, "system_disk": ds.isSystemDisk(d),
	})

	return err == nil && matches
}

// MissingVolumes returns a line of Talos' volume manager for each volume of the configuration without a disk.
func (ds *Disks) MissingVolumes(cfg config.Config, release talos.Release) []string {
	var lines []string

	for _, v := range slices.Concat(ds.nestedVolumes(cfg, release), ds.userVolumes(cfg)) {
		if v.problem != "" {
			lines = append(lines, fmt.Sprintf(`volume status {"component": "controller-runtime", `+
				`"controller": "block.VolumeManagerController", "volume": %q, "phase": "waiting -> failed", "error": %q}`, v.id, v.problem))
		}
	}

	return lines
}

func (ds *Disks) volumeResources(volumes []volume) []resource.Resource {
	var list []resource.Resource

	for _, v := range volumes {
		list = append(list, resources.WithSpec(block.NewVolumeStatus(block.NamespaceName, v.id), func(r *block.VolumeStatus) {
			s := r.TypedSpec()
			s.Type, s.Phase = v.kind, block.VolumePhaseReady

			if v.problem != "" {
				s.Phase, s.PreFailPhase, s.ErrorMessage = block.VolumePhaseFailed, block.VolumePhaseWaiting, v.problem
			}

			if v.disk.Name == "" {
				return
			}

			s.ParentLocation, s.Location, s.PartitionIndex = "/dev/"+v.disk.Name, v.device(), v.partition
			s.Size, s.MountLocation = cmp.Or(v.size, uint64(v.disk.SizeBytes)), v.mount
			s.PrettySize = prettySize(s.Size)

			if v.size == 0 || v.mount != "" {
				s.Filesystem = block.FilesystemTypeXFS
			}

			if v.problem == "" {
				ds.opened[v.id].addTo(s)
			}
		}))
	}

	return list
}
