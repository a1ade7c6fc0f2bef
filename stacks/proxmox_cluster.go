package stacks

import (
	"context"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

// checkProxmoxCluster refuses a Proxmox cluster that is not the stack's: on another one, a refresh finds no machine,
// and all of them would be created again. The first `up` with an answer records the cluster; a configured one takes
// precedence.
func (d *deployment) checkProxmoxCluster(ctx context.Context) (found problem.List, _ error) {
	known := d.plan.ProxmoxCluster
	if known == "" && (!d.lastRun.isBlank() || d.lastRun.hasAny(tokens.File, tokens.RemoteCommand)) {
		// a run that created nothing does not bind the next one
		known = d.lastRun.proxmoxCluster
	}

	current, err := d.lookup.proxmox.Cluster(ctx)

	switch {
	case err == nil && (known == "" || known == current):
		d.lastRun.proxmoxCluster = current
	case err == nil:
		found.Add("", nil, "the Proxmox at %s is another cluster than the one that the stack is on: its certificate authority "+
			"has the fingerprint %s, that of the stack %s; set proxmoxve:endpoint to a host of the stack's cluster. If the stack "+
			"is to move, or its cluster has a new authority: pulumi config set %s:proxmoxCluster %s --stack %s (machines that do "+
			"not exist there are created, empty: docs/pipelines.md#another-proxmox)",
			d.proxmox("endpoint"), current, known, Project, current, d.stack)
	case known != "":
		found.Warn(
			"", nil, "unable to tell whether the Proxmox that answers is the cluster that the stack is on (%s): %s", known, err,
		)
	}

	return found, nil
}
