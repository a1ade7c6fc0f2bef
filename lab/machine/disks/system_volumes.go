package disks

import (
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	blockcfg "github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/internal/talos"
)

// IsDedicated reports whether a system volume has a partition of its own instead of being part of EPHEMERAL. The
// configuration decides that at installation, and Talos refuses to change it later
// (internal/app/machined/pkg/controllers/block/internal/volumes/volumeconfig/system_volumes.go of Talos 1.14).
func IsDedicated(cfg config.Config, name string) bool {
	if !slices.Contains(config.PromotableSystemVolumeNames, name) {
		return false
	}

	volume, _ := cfg.Volumes().ByName(name)

	return blockcfg.ProvisioningRequested(volume.Provisioning())
}

// NestedVolumeNames returns the volumes that a release shows inside EPHEMERAL, or on dedicated partitions if it
// supports them.
func NestedVolumeNames(release talos.Release) []string {
	names := []string{constants.EtcdDataVolumeID} // shown by every release

	for _, name := range config.PromotableSystemVolumeNames[1:] {
		if release.Reads(blockcfg.VolumeConfigKind + "/" + name) {
			names = append(names, name)
		}
	}

	return names
}

// firstDedicatedPartition is the number of the first partition after those that every system disk has.
const firstDedicatedPartition = 5

// nestedVolumes returns this machine's nested volumes: directories, or partitions of the system disk or another one.
func (ds *Disks) nestedVolumes(cfg config.Config, release talos.Release) []volume {
	system, installed := ds.System()
	if cfg == nil || !installed {
		return nil
	}

	var list []volume

	for i, name := range NestedVolumeNames(release) {
		v := volume{id: name, kind: block.VolumeTypeDirectory}

		if IsDedicated(cfg, name) {
			volumeConfig, _ := cfg.Volumes().ByName(name)
			v.kind, v.disk, v.partition = block.VolumeTypePartition, system, firstDedicatedPartition+i

			if volumeConfig.Provisioning().DiskSelector().IsPresent() {
				v.disk, v.problem = ds.volumeDisk(volumeConfig.Provisioning())
			}
		}

		list = append(list, v)
	}

	return list
}
