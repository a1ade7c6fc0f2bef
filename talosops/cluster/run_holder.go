package cluster

import (
	"context"
	"fmt"
	"time"

	"talos-proxmox/talosops/checks"
)

// RunHolder returns who holds the lease of a run, if they renew it; empty if nobody does. Clocks may differ, so that a
// holder is alive if the lease changes within its duration, and this takes as long at most.
func (c *Cluster) RunHolder(ctx context.Context) (string, error) {
	h := c.newLeaseHolder(runLeaseName, "")

	first, _, err := h.readLease(ctx)
	if err != nil || first.HolderIdentity == "" || isDead(first.HolderIdentity) {
		return "", err
	}

	for began := time.Now(); time.Since(began) < leaseDuration; {
		if err := checks.Pause(ctx, h.Interval); err != nil {
			return "", err
		}

		now, _, err := h.readLease(ctx)

		switch {
		case err != nil:
			continue // the API may restart
		case now.HolderIdentity == "":
			return "", nil
		case now.Version != first.Version:
			return fmt.Sprintf("%s since %s", now.HolderIdentity, now.AcquireTime.UTC().Format(time.RFC3339)), nil
		}
	}

	return "", nil
}
