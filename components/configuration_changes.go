package components

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/vmlookup"
)

// showChanges shows in a preview what changes in the machine configurations: once for all nodes with the same changes,
// and nothing for nodes whose configuration is not known yet, or is left as it is.
func (c *TalosCluster) showChanges(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	if !ctx.DryRun() {
		return nil
	}

	release, err := talos.ReleaseOf(args.TalosVersion)
	if err != nil {
		return err
	}

	// The program ends only after this output is known.
	c.secrets.MachineSecrets.ApplyT(func(machine.MachineSecrets) (bool, error) {
		nodes, distinct := map[string][]string{}, []string{}

		for i, n := range args.nodes() {
			before := vmlookup.FromContext(ctx).Configuration(n.Name)
			if before == "" || c.isSkipped(ctx, n) {
				continue
			}

			after, err := internals.UnsafeAwaitOutput(ctx.Context(), c.nodes[i].applied)
			if err != nil || !after.Known { // the error is that of the node's configuration
				continue
			}

			changes := configurationChanges(before, after.Value.(string), !n.Secret && !args.Secret, release)
			if changes == "" {
				continue
			}

			if nodes[changes] == nil {
				distinct = append(distinct, changes)
			}

			nodes[changes] = append(nodes[changes], n.Name)
		}

		var logged error

		for _, changes := range distinct {
			text := "changes in the machine configuration of " + strings.Join(nodes[changes], ", ") + ":" + changes
			logged = errors.Join(logged, ctx.Log.Info(text, &pulumi.LogArgs{Resource: c}))
		}

		return true, logged
	})

	return nil
}

// configurationChanges returns what changes in a machine configuration, a line each without secrets; empty = nothing.
// Values are shown only withValues: an encrypted patch may have set them.
func configurationChanges(before, after string, withValues bool, release talos.Release) string {
	inPlace := "in place"
	if release.RestartsForChanges {
		inPlace += ", unless this release of Talos restarts the machine for it"
	}

	var lines strings.Builder

	// Without the changes, if the configuration in the state is of a form that this program does not know.
	changes, _ := talos.ConfigurationChanges(before, after, withValues)
	for _, change := range changes {
		effect := inPlace
		if change.Restart {
			effect = "with a restart"
		}

		fmt.Fprintf(&lines, "\n  %s (%s)", change, effect)
	}

	return lines.String()
}
