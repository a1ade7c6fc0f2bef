package preflight

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/vmdiff"
)

// readLostVolumes reads which volumes the deletion of machines takes beyond their own disks: the provider deletes with
// destroy-unreferenced-disks (bpg/proxmox 0.69.1, DeleteVM), so that Proxmox removes every volume with the VMID in its
// name from every storage of the host.
func (r *reader) readLostVolumes(ctx context.Context) {
	var wg sync.WaitGroup

	for _, m := range vmdiff.Removed(r.Plan, slices.Collect(maps.Values(r.Stack.Machines))) {
		wg.Go(func() {
			lost, err := LostVolumes(ctx, r.Proxmox, m)
			r.record("which volumes are deleted with "+m.Name, err, func(s *Site) {
				if len(lost) > 0 {
					s.LostVolumes[m.Name] = lost
				}
			})
		})
	}

	wg.Wait()
}

// LostVolumes returns the volumes that the deletion of a machine takes beyond its own disks; none if it is gone.
func LostVolumes(ctx context.Context, proxmox *proxmoxapi.Machines, m vmdiff.Machine) ([]string, error) {
	found, err := proxmox.Find(ctx, m.Host, m.VMID)
	if errors.Is(err, proxmoxapi.ErrNotFound) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	volumes, err := proxmoxapi.Volumes(ctx, proxmox.Get, found.Host, m.VMID)
	if err != nil {
		return nil, err
	}

	return unnamedVolumes(m, found, volumes), nil
}

// unnamedVolumes returns the volumes of a machine's VMID that are none of the disks in the state: those that were
// attached by hand, detached, or never attached.
func unnamedVolumes(m vmdiff.Machine, found proxmoxapi.Machine, volumes []string) []string {
	own := map[string]bool{}

	for key, volume := range found.Disks() {
		if strings.HasPrefix(key, "efidisk") || strings.HasPrefix(key, "tpmstate") ||
			slices.ContainsFunc(m.Disks, func(d vmdiff.Disk) bool { return d.Interface == key }) {
			own[volume] = true
		}
	}

	return slices.Sorted(slices.Values(slices.DeleteFunc(volumes, func(volume string) bool {
		return own[volume] || strings.Contains(volume, "-cloudinit")
	})))
}

// checkLostVolumes warns of volumes that the plan's deletions take.
func (c *checker) checkLostVolumes() {
	for _, name := range slices.Sorted(maps.Keys(c.site.LostVolumes)) {
		c.warn("", "", nil, "%s%s%s. Proxmox counts them to its VMID: to keep one, rename it on the host first "+
			"(docs/troubleshooting.md#volumes-that-nobody-named)", name, vmdiff.LostVolumesText, strings.Join(c.site.LostVolumes[name], ", "))
	}
}
