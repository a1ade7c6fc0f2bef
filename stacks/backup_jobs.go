package stacks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
)

// checkBackupJobs warns of plain machines that are to be in a backup job of Proxmox, and that no job includes which is
// switched on. New machines are not known yet.
func (d *deployment) checkBackupJobs(ctx context.Context) (found problem.List, _ error) {
	var paths []string

	wanted := map[string][]int{} // indices of machines, by path

	for i, m := range d.plan.Machines {
		if m.Backup {
			if !slices.Contains(paths, m.Path) {
				paths = append(paths, m.Path)
			}

			wanted[m.Path] = append(wanted[m.Path], i)
		}
	}

	if len(paths) == 0 {
		return nil, nil
	}

	listed, err := d.lookup.proxmox.List(ctx)
	if err != nil { // which other checks report
		return nil, nil //nolint:nilerr // see above
	}

	jobs, err := proxmoxapi.BackupJobs(ctx, d.lookup.proxmox.Get)
	if err != nil {
		found.Warn(paths[0]+".backup", nil, "whether backup jobs of Proxmox include its machines is unknown: %s", err)

		return found, nil
	}

	for _, path := range paths {
		var left []string

		for _, i := range wanted[path] {
			m := d.plan.Machines[i]

			at := slices.IndexFunc(listed, func(vm proxmoxapi.Listed) bool { return vm.VMID == m.VMID && vm.Name == m.Name })
			if at >= 0 && !slices.ContainsFunc(jobs, func(j proxmoxapi.BackupJob) bool { return j.Includes(listed[at]) }) {
				left = append(left, fmt.Sprintf("%s (VM %d)", m.Name, m.VMID))
			}
		}

		if len(left) > 0 {
			found.Warn(path+".backup", nil, "no backup job of Proxmox that is switched on includes %s: add them to one "+
				"(docs/recovery.md#plain-machines)", strings.Join(left, ", "))
		}
	}

	return found, nil
}
