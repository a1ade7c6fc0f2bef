package disks

import (
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/lab/machine/resources"
)

// userVolume is a volume of the configuration on this machine.
type userVolume struct {
	id, mount string
	kind      block.VolumeType
	disk      Device
	problem   string // why it is not there; empty when it is
}

// userVolumes finds a disk for every volume of the configuration.
func (ds *Disks) userVolumes(cfg config.Config) []userVolume {
	if cfg == nil {
		return nil
	}

	var list []userVolume

	for _, doc := range cfg.UserVolumeConfigs() {
		v := userVolume{
			id:    constants.UserVolumePrefix + doc.Name(),
			mount: constants.UserVolumeMountPoint + "/" + doc.Name(),
			kind:  doc.Type().ValueOr(block.VolumeTypePartition),
		}

		if v.kind != block.VolumeTypeDirectory {
			v.disk, v.problem = ds.volumeDisk(doc.Provisioning())
		}

		list = append(list, v)
	}

	return list
}

// volumeDisk is the first disk that a volume's selector matches, large enough for it.
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

		if minimum, stated := wanted.MinSize().Get(); stated && uint64(d.SizeBytes) < minimum {
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

	matches, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{"disk": spec, "system_disk": ds.runsFrom(d)})

	return err == nil && matches
}

// Missing says which volumes of the configuration have no disk, as Talos' volume manager does on the console.
func (ds *Disks) Missing(cfg config.Config) []string {
	var lines []string

	for _, v := range ds.userVolumes(cfg) {
		if v.problem != "" {
			lines = append(lines, fmt.Sprintf(`volume status {"component": "controller-runtime", `+
				`"controller": "block.VolumeManagerController", "volume": %q, "phase": "waiting -> failed", "error": %q}`, v.id, v.problem))
		}
	}

	return lines
}

func (ds *Disks) userVolumeResources(cfg config.Config) []resource.Resource {
	var list []resource.Resource

	for _, v := range ds.userVolumes(cfg) {
		list = append(list, resources.Filled(block.NewVolumeStatus(block.NamespaceName, v.id), func(r *block.VolumeStatus) {
			s := r.TypedSpec()
			s.Type, s.Phase = v.kind, block.VolumePhaseReady

			if v.problem != "" {
				s.Phase, s.PreFailPhase, s.ErrorMessage = block.VolumePhaseFailed, block.VolumePhaseWaiting, v.problem
			}

			if v.disk.Name != "" {
				s.ParentLocation, s.Location = "/dev/"+v.disk.Name, "/dev/"+v.disk.Name+"1"
				s.Size, s.PrettySize, s.Filesystem = uint64(v.disk.SizeBytes), prettySize(
					uint64(v.disk.SizeBytes),
				), block.FilesystemTypeXFS
			}
		}))

		source := ""
		if v.disk.Name != "" {
			source = "/dev/" + v.disk.Name + "1"
		}

		if v.problem == "" {
			list = append(list, resources.Filled(block.NewMountStatus(block.NamespaceName, v.id), func(r *block.MountStatus) {
				s := r.TypedSpec()
				s.Spec.VolumeID, s.Source, s.Target, s.Filesystem = v.id, source, v.mount, block.FilesystemTypeXFS
			}))
		}
	}

	return list
}
