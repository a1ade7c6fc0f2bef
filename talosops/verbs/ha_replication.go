package verbs

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"talos-proxmox/internal/proxmoxapi"
)

// ensureReplication makes the jobs that copy the machine's disks to its other hosts as they are wanted.
func (m haMaker) ensureReplication(ctx context.Context) error {
	has, err := proxmoxapi.ReadHA(ctx, m.get)
	if err != nil {
		return err
	}

	for _, c := range has.Replication(m.req.HAMachine) {
		m.say("Proxmox' high availability of %s (VM %d): %s", m.req.Machine, m.req.VMID, c.Subject)

		switch {
		case c.Target == "":
			err = m.removeJob(ctx, *c.Found, has)
		case c.Found == nil:
			err = m.createJob(ctx, c.Target)
		default:
			err = m.changeJob(ctx, *c.Found)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// createJob creates a job to a host, once a former one to it is gone.
func (m haMaker) createJob(ctx context.Context, target string) error {
	for {
		has, err := proxmoxapi.ReadHA(ctx, m.get)
		if err != nil {
			return err
		}

		taken := map[int]bool{}
		leaving := false

		for _, job := range has.Jobs {
			if job.VMID == m.req.VMID {
				taken[job.Number] = true
				leaving = leaving || job.Target == target // Removing, or it would be the one
			}
		}

		if leaving {
			if err := proxmoxapi.Sleep(ctx, hostPoll); err != nil {
				return fmt.Errorf("the former copies on %s are still being removed: %w", target, err)
			}

			continue
		}

		number := 0
		for taken[number] {
			number++
		}

		body := map[string]any{
			"id": proxmoxapi.ReplicationID(m.req.VMID, number), "type": "local", "target": target,
			"schedule": m.req.Schedule, "comment": m.req.Comment,
		}
		if m.req.RateMBs > 0 {
			body["rate"] = m.req.RateMBs
		}

		return m.Send(ctx, http.MethodPost, proxmoxapi.PathReplication, body)
	}
}

func (m haMaker) changeJob(ctx context.Context, job proxmoxapi.ReplicationJob) error {
	body := map[string]any{"schedule": m.req.Schedule, "comment": m.req.Comment, "disable": 0}
	if m.req.RateMBs > 0 {
		body["rate"] = m.req.RateMBs
	} else {
		body["delete"] = "rate"
	}

	return m.Send(ctx, http.MethodPut, proxmoxapi.ReplicationPath(job.ID), body)
}

// removeJob marks a job for removal. The scheduler of the machine's host then removes the copies and the job; it cannot
// reach copies on a host that is offline, and does nothing for a machine that is gone or whose host is offline.
func (m haMaker) removeJob(
	ctx context.Context, job proxmoxapi.ReplicationJob, has proxmoxapi.HighAvailability,
) error {
	hosts, err := proxmoxapi.Hosts(ctx, m.get)
	if err != nil {
		return err
	}

	online := func(name string) bool {
		return slices.ContainsFunc(hosts, func(h proxmoxapi.Host) bool {
			return h.Name == name && h.Status != proxmoxapi.HostOffline
		})
	}

	how := ""

	switch host, exists := has.Hosts[m.req.VMID]; {
	case !exists || !online(host):
		how = "?force=1"
	case !online(job.Target):
		how = "?keep=1"
	}

	if job.Removing != "" && how == "" || job.Removing == "local" && how == "?keep=1" { // was marked so before
		return nil
	}

	if how != "" {
		m.say("copies of the disks of %s stay on %s, and have to be deleted there: not all of its hosts are online", m.req.Machine,
			job.Target)
	}

	return m.Send(ctx, http.MethodDelete, proxmoxapi.ReplicationPath(job.ID)+how, nil)
}

// removeReplication removes the machine's jobs with the copies, and waits for that: the deletion of the machine would
// leave the copies.
func (m haMaker) removeReplication(ctx context.Context) error {
	said := false

	for {
		has, err := proxmoxapi.ReadHA(ctx, m.get)
		if err != nil {
			return err
		}

		jobs := has.JobsOf(m.req.HAMachine)
		if len(jobs) == 0 {
			return nil
		}

		if !said {
			m.say("Proxmox removes the copies of the disks of %s, in its next minute", m.req.Machine)

			said = true
		}

		for _, job := range jobs {
			if err := m.removeJob(ctx, job, has); err != nil {
				return err
			}
		}

		if err := proxmoxapi.Sleep(ctx, hostPoll); err != nil {
			return fmt.Errorf("copies of its disks are still being removed: %w", err)
		}
	}
}
