package proxmoxapi

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/internal/request"
)

// PathReplication is the collection of replication jobs in the API. Everyone sees those of machines with VM.Audit.
const PathReplication = "/cluster/replication"

// ReplicationPath returns the path of a job.
func ReplicationPath(id string) string { return PathReplication + "/" + url.PathEscape(id) }

// ReplicationID returns the id of a VM's job.
func ReplicationID(vmid, number int) string { return fmt.Sprintf("%d-%d", vmid, number) }

// ReplicationJob copies the disks of a machine to another host.
type ReplicationJob struct {
	ID       string
	VMID     int `json:"guest"`
	Number   int `json:"jobnum"`
	Target   string
	Source   string // the machine's host when Proxmox worked on the job last
	Schedule string
	Rate     value // in megabytes per second; empty = no limit
	Comment  string
	Disable  Boolean
	// Removing is what Proxmox still removes before the job is gone: local (snapshots), or full (copies as well); empty =
	// the job stays.
	Removing string `json:"remove_job"`
}

// TargetFrom returns the host to which the job copies the disks of a machine on a host. If that is the target, the
// machine was moved, and Proxmox swaps both in its next minute.
func (j ReplicationJob) TargetFrom(host string) string {
	if j.Target == host {
		return j.Source
	}

	return j.Target
}

// Rates of Proxmox are decimal numbers.
func (j ReplicationJob) hasRate(megabytes int) bool {
	rate, err := strconv.ParseFloat(cmp.Or(string(j.Rate), "0"), 64)

	return err == nil && rate == float64(megabytes)
}

// ReplicationChange is a difference between the jobs that a machine is to have and those that Proxmox has.
type ReplicationChange struct {
	Subject string // replication to pve2 (missing)
	Target  string // of a job that is to be; empty = Found is not to be
	Found   *ReplicationJob
}

// readReplication reads the jobs, and on which hosts their machines are.
func (h *HighAvailability) readReplication(ctx context.Context, get Get) error {
	if err := get(ctx, PathReplication, &h.Jobs); err != nil {
		return Cause(err)
	}

	var machines []Listed
	if err := get(ctx, pathMachines, &machines); err != nil {
		return Cause(err)
	}

	h.Hosts = map[int]string{}
	for _, m := range machines {
		h.Hosts[m.VMID] = m.Host
	}

	return nil
}

// JobsOf returns the jobs of a machine that the program made, by their comment.
func (h HighAvailability) JobsOf(w request.HAMachine) []ReplicationJob {
	return slices.DeleteFunc(slices.Clone(h.Jobs), func(j ReplicationJob) bool {
		return j.VMID != w.VMID || j.Comment != w.Comment
	})
}

// Replication returns what changes at the jobs of a machine: one for each other host that it may run on. Jobs of others
// to these hosts become the program's.
func (h HighAvailability) Replication(w request.HAMachine) (changes []ReplicationChange) {
	host, exists := h.Hosts[w.VMID]
	if !exists {
		return nil
	}

	wanted := func(target string) bool {
		return w.Schedule != "" && target != host && slices.Contains(w.Hosts, target)
	}

	for _, target := range w.Hosts {
		if !wanted(target) {
			continue
		}

		c := ReplicationChange{Subject: "replication to " + target, Target: target}

		at := slices.IndexFunc(h.Jobs, func(j ReplicationJob) bool {
			return j.VMID == w.VMID && j.TargetFrom(host) == target && j.Removing == ""
		})
		if at < 0 {
			c.Subject += " (missing)"
			changes = append(changes, c)

			continue
		}

		c.Found = &h.Jobs[at]
		if cmp.Or(c.Found.Schedule, "*/15") != w.Schedule || !c.Found.hasRate(w.RateMBs) || c.Found.Comment != w.Comment ||
			bool(c.Found.Disable) {
			changes = append(changes, c)
		}
	}

	for _, job := range h.JobsOf(w) {
		if target := job.TargetFrom(host); job.Removing == "" && !wanted(target) {
			changes = append(changes, ReplicationChange{
				Subject: "replication to " + target + " (not planned)", Found: &job,
			})
		}
	}

	return changes
}

// ReplicationFailures says, by VMID, which copies of the machines on a host fail, or were not made yet.
func ReplicationFailures(ctx context.Context, get Get, host string) (map[int][]string, error) {
	var jobs []struct {
		ReplicationJob

		LastSync int64  `json:"last_sync"` // in seconds since 1970; 0 = never
		Failures int    `json:"fail_count"`
		Error    string `json:"error"`
	}
	if err := get(ctx, "/nodes/"+url.PathEscape(host)+"/replication", &jobs); err != nil {
		return nil, Cause(err)
	}

	all := map[int][]string{}

	for _, j := range jobs {
		last := "there is no copy yet"
		if j.LastSync > 0 {
			last = "the last copy is of " + time.Unix(j.LastSync, 0).UTC().Format(time.RFC3339)
		}

		switch {
		case j.Removing != "":
		case j.Failures > 0 || j.Error != "":
			all[j.VMID] = append(all[j.VMID], fmt.Sprintf("to %s fails: %s; %s", j.Target, strings.TrimSpace(j.Error), last))
		case j.LastSync == 0:
			all[j.VMID] = append(all[j.VMID], fmt.Sprintf("to %s: %s", j.Target, last))
		}
	}

	return all, nil
}
