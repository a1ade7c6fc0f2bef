package proxmoxapi

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"talos-proxmox/internal/ownership"
)

// OutlivingVolume is a volume that outlives machines.
type OutlivingVolume struct {
	ownership.Volume

	ID        string   // local-lvm:vm-…
	Hosts     []string // that have it: one, or all with its shared datastore
	SizeBytes int64
	// Holder is the VM that has it attached, at Disk (virtio1); nil = none that the credentials may see.
	Holder *Listed
	Disk   string
}

// Path returns the volume's path in its datastore.
func (v OutlivingVolume) Path() string {
	_, path, _ := strings.Cut(v.ID, ":")

	return path
}

// OutlivingVolumes returns the volumes of a name of a machine, of all stacks, sorted by id, with the VMs that have
// them, and the hosts that are offline, whose volumes are unknown. The VM with the machine's VMID is asked first,
// and the others only if it does not have them.
func OutlivingVolumes(
	ctx context.Context, get Get, machine, volume string, vmid int,
) (found []OutlivingVolume, offline []string, err error) {
	hosts, err := Hosts(ctx, get)
	if err != nil {
		return nil, nil, err
	}

	for _, host := range hosts {
		if host.Status != HostOnline {
			offline = append(offline, host.Name)

			continue
		}

		onHost, err := listVolumes(ctx, get, host.Name, ownership.VolumesVMID)
		if err != nil {
			return nil, nil, err
		}

		for _, v := range onHost {
			known := slices.IndexFunc(found, func(f OutlivingVolume) bool { return v.shared && f.ID == v.ID })
			if known >= 0 {
				found[known].Hosts = append(found[known].Hosts, host.Name)
			} else if name, is := ownership.VolumeOf(v.ID); is && name.Machine == machine && name.Name == volume {
				found = append(found, OutlivingVolume{Volume: name, ID: v.ID, Hosts: []string{host.Name}, SizeBytes: v.Size})
			}
		}
	}

	slices.SortFunc(found, func(a, b OutlivingVolume) int { return strings.Compare(a.ID, b.ID) })
	slices.Sort(offline)

	if len(found) == 0 {
		return nil, offline, nil
	}

	return found, offline, findHolders(ctx, get, found, vmid)
}

// findHolders sets the VMs that have the volumes, now or at their next start. It asks one VM first.
func findHolders(ctx context.Context, get Get, volumes []OutlivingVolume, first int) error {
	var machines []Listed
	if err := get(ctx, pathMachines, &machines); err != nil {
		return fmt.Errorf("unable to list Proxmox' machines: %w", Cause(err))
	}

	if i := slices.IndexFunc(machines, func(m Listed) bool { return m.VMID == first }); i > 0 {
		machines[0], machines[i] = machines[i], machines[0]
	}

	for _, listed := range machines {
		if listed.Type != "qemu" {
			continue
		}

		if !slices.ContainsFunc(volumes, func(v OutlivingVolume) bool { return v.Holder == nil }) {
			return nil
		}

		for _, which := range []string{"", "?current=1"} {
			m := Machine{}
			if err := get(ctx, configPath(listed.Host, listed.VMID)+which, &m.Config); err != nil {
				if strings.Contains(err.Error(), "does not exist") {
					continue
				}

				return fmt.Errorf("unable to read VM %d on host %s: %w", listed.VMID, listed.Host, Cause(err))
			}

			for disk, id := range m.Disks() {
				for i := range volumes {
					if v := &volumes[i]; v.ID == id && slices.Contains(v.Hosts, listed.Host) {
						v.Holder, v.Disk = &listed, disk
					}
				}
			}
		}
	}

	return nil
}

// listedVolume is a volume in the list of a host's storages.
type listedVolume struct {
	ID   string `json:"volid"`
	Size int64  `json:"size"`

	shared bool
}

// listVolumes lists the volumes of a VMID on a host's storages, whether the VM has them or not.
func listVolumes(ctx context.Context, get Get, host string, vmid int) (all []listedVolume, err error) {
	node := "/nodes/" + url.PathEscape(host) + "/storage"

	var storages []struct {
		Name   string `json:"storage"`
		Shared int    `json:"shared"`
	}
	if err := get(ctx, node+"?content=images&enabled=1", &storages); err != nil {
		return nil, fmt.Errorf("unable to list the storages of %s: %w", host, Cause(err))
	}

	for _, storage := range storages {
		var content []listedVolume
		if err := get(
			ctx, fmt.Sprintf("%s/%s/content?content=images&vmid=%d", node, url.PathEscape(storage.Name), vmid), &content,
		); err != nil {
			return nil, fmt.Errorf("unable to list the volumes of %s on %s: %w", storage.Name, host, Cause(err))
		}

		for _, volume := range content {
			volume.shared = storage.Shared == 1
			all = append(all, volume)
		}
	}

	return all, nil
}
