package components

import (
	"encoding/json"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tokens"
)

// leaveTimeout limits each wait of a node that leaves, including the wait for nodes that leave before it.
const leaveTimeout = "30m"

// registerLeaves has every node leave its cluster before its VM is deleted or replaced. A node's command does nothing
// until it is deleted, and then runs with the request in the state: the control planes when the node was planned last.
// It depends on the VM and the configuration, so it is deleted before them, and is replaced with the VM. The commands
// do not depend on each other: the cluster's lease lets one at a time work, and fifty of them are registered at once.
// When the cluster's secrets are deleted, the whole cluster is, and no command runs.
func (c *TalosCluster) registerLeaves(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	for i, n := range args.nodes() {
		req := request.Leave{Common: args.commonRequest(), Node: requestNodes([]ClusterNode{n})[0]}
		req.Timeout = leaveTimeout

		if n.isControlPlane() {
			req.Protected = args.Protect
			req.Backup = args.Backup
		}

		stdin := c.controlTalosconfig.ApplyT(func(talosconfig string) (string, error) {
			req.Talosconfig = talosconfig
			text, err := json.Marshal(req)

			return string(text), err
		}).(pulumi.StringOutput)

		if _, err := local.NewCommand(ctx, n.Name+tokens.OfLeave, &local.CommandArgs{
			Delete:                 pulumi.String(talosopsexec.Command(ctx) + "leave"),
			Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
			AddPreviousOutputInEnv: pulumi.Bool(false),
			Logging:                local.LoggingStderr,
		},
			pulumi.Parent(c), ignoreLogging(),
			pulumi.DependsOn([]pulumi.Resource{c.nodes[i].vm, c.nodes[i].configuration}),
			pulumi.ReplaceWith([]pulumi.Resource{c.nodes[i].vm}),
			pulumi.DeletedWith(c.secrets),
		); err != nil {
			return err
		}
	}

	return nil
}
