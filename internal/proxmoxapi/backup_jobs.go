package proxmoxapi

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// pathBackupJobs is the collection of backup jobs in the API. It needs Sys.Audit on /.
const pathBackupJobs = "/cluster/backup"

// BackupJob is a job of Proxmox that backs machines up. It has either VMIDs, or a resource pool, or all machines but
// some.
type BackupJob struct {
	VMIDs    value    `json:"vmid"`
	Pool     string   `json:"pool"`
	All      Boolean  `json:"all"`
	Excluded value    `json:"exclude"`
	Node     string   `json:"node"`    // the only host whose machines it backs up; empty = all
	Enabled  *Boolean `json:"enabled"` // nil = yes
}

// BackupJobs returns the backup jobs of the Proxmox cluster.
func BackupJobs(ctx context.Context, get Get) (jobs []BackupJob, err error) {
	if err := get(ctx, pathBackupJobs, &jobs); err != nil {
		return nil, Cause(err)
	}

	return jobs, nil
}

// Includes reports whether the job backs a machine up, as get_included_guests of PVE::VZDump decides. A job that is
// switched off backs nothing up, although Proxmox' own list of machines without a job counts it.
func (j BackupJob) Includes(m Listed) bool {
	vmid := strconv.Itoa(m.VMID)

	switch {
	case j.Enabled != nil && !bool(*j.Enabled), j.Node != "" && j.Node != m.Host:
		return false
	case j.Pool != "":
		return j.Pool == m.Pool
	case j.VMIDs != "":
		return slices.Contains(splitList(string(j.VMIDs)), vmid)
	default:
		return bool(j.All) && !slices.Contains(splitList(string(j.Excluded)), vmid)
	}
}

// splitList splits a list as split_list of PVE::Tools does.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",;\x00 \t\n", r) })
}
