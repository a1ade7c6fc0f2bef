package cluster

import (
	"context"
	"time"

	"talos-proxmox/talosops/checks"
)

const (
	healthCheckName = "healthCheck"
	// healthCheckTimeout bounds one run of the command.
	healthCheckTimeout = time.Minute
)

// AwaitHealthCheck waits until the user's own command succeeds, which says that the workloads tolerate the loss of a
// machine.
func (c *Cluster) AwaitHealthCheck(ctx context.Context) error {
	if c.HealthCheck == "" {
		return nil
	}

	goal := checks.Goal{
		Before: "your health check succeeded", Missed: "your health check does not succeed, so no machine may be changed",
		Remedy: "repair what it says, or change healthCheck of the cluster",
	}

	return c.Within(ctx, SteadyTimeout, goal, func(ctx context.Context) checks.Report {
		output, err := runCommand(ctx, c.HealthCheck, c.Kubeconfig, healthCheckTimeout)
		if err != nil {
			return checks.Problem("cluster", healthCheckName, err.Error(), output)
		}

		return nil
	})
}
