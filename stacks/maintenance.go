package stacks

import (
	"fmt"
	"os"
	"time"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/vmdiff"
)

// checkMaintenance reports machines that the plan interrupts outside of their cluster's maintenance windows. Forced
// changes repair a cluster, and talosops refuses forced upgrades.
func (d *deployment) checkMaintenance(found *problem.List) {
	if os.Getenv(request.ForceVariable) != "" {
		return
	}

	interrupted := map[string][]string{}

	for _, c := range vmdiff.Changes(d.plan, d.lastRun.machines) {
		if effect := c.Effect(); effect == vmdiff.Upgrade || effect == vmdiff.Restart || effect == vmdiff.Replace {
			interrupted[c.Machine.Cluster] = append(interrupted[c.Machine.Cluster], c.Machine.Name)
		}
	}

	for i, cluster := range d.plan.Clusters {
		refusal := cluster.Maintenance.Refusal(time.Now())
		if refusal == "" || len(interrupted[cluster.Name]) == 0 {
			continue
		}

		path, names := fmt.Sprintf("clusters[%d].maintenance.windows", i), vmdiff.JoinNames(interrupted[cluster.Name])
		if d.preview {
			found.Warn(path, nil, "up does not interrupt %s now: %s", names, refusal)
		} else {
			found.Add(path, nil, "do not allow to interrupt %s now: %s", names, refusal)
		}
	}
}
