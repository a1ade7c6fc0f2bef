package proxmoxapi

import (
	"context"
	"regexp"
	"slices"
	"strings"
)

var diskKey = regexp.MustCompile(`^(scsi|virtio|sata|ide|efidisk|tpmstate|unused)\d+$`)

// Disks returns the volumes of a VM's disks by their keys, without CD-ROM media.
func (m Machine) Disks() map[string]string {
	disks := map[string]string{}

	for key, value := range m.Config {
		volume, _, _ := strings.Cut(string(value), ",")
		if media, _ := m.Option(key, "media"); diskKey.MatchString(key) && volume != "none" && media != "cdrom" {
			disks[key] = volume
		}
	}

	return disks
}

// DiskVolumes returns the volumes of a VM's disks with their sizes, sorted: local-lvm:vm-3000-disk-0 (20G).
func (m Machine) DiskVolumes() []string {
	var disks []string

	for key, volume := range m.Disks() {
		if size, _ := m.Option(key, "size"); size != "" {
			volume += " (" + size + ")"
		}

		disks = append(disks, volume)
	}

	slices.Sort(disks)

	return disks
}

// Get sends a GET request and decodes the answer.
type Get func(ctx context.Context, path string, into any) error

// Volumes lists the volumes of a VMID on a host's storages, whether the VM has them or not.
func Volumes(ctx context.Context, get Get, host string, vmid int) (ids []string, err error) {
	list, err := listVolumes(ctx, get, host, vmid)
	for _, volume := range list {
		ids = append(ids, volume.ID)
	}

	return ids, err
}
