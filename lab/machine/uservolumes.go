package machine

import (
	"github.com/cosi-project/runtime/pkg/resource"
	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// userVolume is a volume of the configuration on this machine.
type userVolume struct {
	id, mount string
	kind      block.VolumeType
	disk      blockDevice
	problem   string // why it is not there; empty when it is
}

// userVolumes finds a disk for every volume of the configuration; the caller holds the lock.
func (m *machine) userVolumes() []userVolume {
	if m.config == nil {
		return nil
	}

	var list []userVolume

	for _, doc := range m.config.UserVolumeConfigs() {
		v := userVolume{id: constants.UserVolumePrefix + doc.Name(), mount: constants.UserVolumeMountPoint + "/" + doc.Name(), kind: doc.Type().ValueOr(block.VolumeTypePartition)}

		if v.kind != block.VolumeTypeDirectory {
			v.disk, v.problem = m.volumeDisk(doc.Provisioning())
		}

		list = append(list, v)
	}

	return list
}

// volumeDisk is the first disk that a volume's selector matches, large enough for it.
func (m *machine) volumeDisk(wanted config.VolumeProvisioningConfig) (blockDevice, string) {
	expression, ok := wanted.DiskSelector().Get()
	if !ok {
		return blockDevice{}, "no disks matched selector for volume"
	}

	var small bool

	for _, d := range m.blockDevices() {
		if d.CDROM || !m.matchesDisk(expression, d) {
			continue
		}

		if minimum, stated := wanted.MinSize().Get(); stated && uint64(d.SizeBytes) < minimum {
			small = true

			continue
		}

		return d, ""
	}

	if small {
		return blockDevice{}, "no disks matched for volume: the matched disks have not enough space"
	}

	return blockDevice{}, "no disks matched selector for volume"
}

func (m *machine) matchesDisk(expression cel.Expression, d blockDevice) bool {
	spec := &blockpb.DiskSpec{}
	if err := proto.ResourceSpecToProto(d.resource(), spec); err != nil {
		return false
	}

	matches, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{"disk": spec, "system_disk": m.volume != "" && d.Volume == m.volume})

	return err == nil && matches
}

// checkVolumes says on the console which volumes have no disk, as Talos does while it waits for one; the caller holds the lock.
func (m *machine) checkVolumes() {
	for _, v := range m.userVolumes() {
		if v.problem != "" {
			m.logf(`[talos] volume status {"component": "controller-runtime", "controller": "block.VolumeManagerController", "volume": %q, "phase": "waiting -> failed", "error": %q}`, v.id, v.problem)
		}
	}
}

func (m *machine) describeUserVolumes() []resource.Resource {
	var list []resource.Resource

	for _, v := range m.userVolumes() {
		list = append(list, filled(block.NewVolumeStatus(block.NamespaceName, v.id), func(r *block.VolumeStatus) {
			s := r.TypedSpec()
			s.Type, s.Phase = v.kind, block.VolumePhaseReady

			if v.problem != "" {
				s.Phase, s.PreFailPhase, s.ErrorMessage = block.VolumePhaseFailed, block.VolumePhaseWaiting, v.problem
			}

			if v.disk.name != "" {
				s.ParentLocation, s.Location = "/dev/"+v.disk.name, "/dev/"+v.disk.name+"1"
				s.Size, s.PrettySize, s.Filesystem = uint64(v.disk.SizeBytes), prettySize(uint64(v.disk.SizeBytes)), block.FilesystemTypeXFS
			}
		}))

		source := ""
		if v.disk.name != "" {
			source = "/dev/" + v.disk.name + "1"
		}

		if v.problem == "" {
			list = append(list, filled(block.NewMountStatus(block.NamespaceName, v.id), func(r *block.MountStatus) {
				s := r.TypedSpec()
				s.Spec.VolumeID, s.Source, s.Target, s.Filesystem = v.id, source, v.mount, block.FilesystemTypeXFS
			}))
		}
	}

	return list
}
