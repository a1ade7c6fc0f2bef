package components

import (
	"encoding/json"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tokens"
)

// leaveTimeout bounds each wait of a node that leaves, for others that leave before it, too.
const leaveTimeout = "30m"

// makeLeaves has every node leave its cluster before its VM goes, for good or for another one. The command of a node
// does nothing until it is deleted, and then runs with the request that the state has: which control planes there were
// when the node was planned last. It depends on what goes after it, and is replaced with its VM. The commands do not
// depend on each other: the lease of the cluster lets one at a time work, and fifty of them are registered at once.
// Where the cluster's secrets go, the whole cluster goes, and nothing is asked of it.
func (c *TalosCluster) makeLeaves(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	for i, n := range args.nodes() {
		question := request.Leave{Common: args.common(), Node: talosopsNodes([]ClusterNode{n})[0]}
		question.Timeout = leaveTimeout

		if n.isControlPlane() {
			question.Protected = args.Protect
			question.Backup = args.Backup
		}

		stdin := c.control.ApplyT(func(talosconfig string) (string, error) {
			question.Talosconfig = talosconfig
			text, err := json.Marshal(question)

			return string(text), err
		}).(pulumi.StringOutput)

		if _, err := local.NewCommand(ctx, n.Name+tokens.OfLeave, &local.CommandArgs{
			Delete:                 pulumi.String(talosopsexec.Command(ctx) + "leave"),
			Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
			AddPreviousOutputInEnv: pulumi.Bool(false),
			Logging:                local.LoggingStderr,
		},
			pulumi.Parent(c), keepLogging(),
			pulumi.DependsOn([]pulumi.Resource{c.nodes[i].vm, c.nodes[i].applied}),
			pulumi.ReplaceWith([]pulumi.Resource{c.nodes[i].vm}),
			pulumi.DeletedWith(c.secrets),
		); err != nil {
			return err
		}
	}

	return nil
}
