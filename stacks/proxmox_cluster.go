package stacks

import (
	"fmt"
	"os"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/tokens"
)

// judgeProxmoxCluster refuses a Proxmox cluster that is not the stack's: on another one a refresh finds no machine, and
// all of them would be made anew. The first `up` that Proxmox answers records which one it is; a stated one counts for
// more than the record.
func (d *deployment) judgeProxmoxCluster(ctx *pulumi.Context) error {
	known := d.plan.ProxmoxCluster
	if known == "" && (!d.last.blank() || d.last.hasAny(tokens.File, tokens.RemoteCommand)) {
		// a run that made nothing does not bind the next one
		known = d.last.cluster
	}

	answers, err := d.machines.asked.Cluster(ctx.Context())
	if err != nil {
		if known == "" {
			return nil
		}

		return warn(ctx, fmt.Sprintf(
			"unable to tell whether the Proxmox that answers is the cluster that the stack is on (%s): %s", known, err,
		))
	}

	if known != "" && known != answers {
		return fmt.Errorf(
			"the Proxmox at %s is another cluster than the one that the stack is on, nothing was changed: its certificate "+
				"authority has the fingerprint %s, that of the stack %s; set proxmoxve:endpoint to a host of the stack's cluster. "+
				"If the stack is to move, or its cluster has a new authority: pulumi config set %s:proxmoxCluster %s --stack %s "+
				"(machines that do not exist there are created, empty: docs/pipelines.md#another-proxmox)",
			proxmoxSetting(ctx, os.Getenv)("endpoint"), answers, known, namespace, answers, ctx.Stack(),
		)
	}

	d.last.cluster = answers

	return nil
}
