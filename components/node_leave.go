package components

import (
	"encoding/base64"
	"errors"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tokens"
)

// leaveTimeout limits each wait of a node that leaves, including the wait for nodes that leave before it.
const leaveTimeout = "30m"

// registerLeaves has every node leave its cluster before its VM is deleted or replaced. A node's command does nothing
// until it is deleted, and then runs with the request in the state: the control planes when the node was planned last.
// It depends on the VM and the configuration, so it is deleted before them, and is replaced with the VM. It depends on
// the bootstrap as well: a node that has it belongs to a cluster with etcd data, which talosops relies on. The commands
// do not depend on each other: the cluster's lease lets one at a time work, and fifty of them are registered at once.
// When the cluster's secrets are deleted, the whole cluster is, and no command runs.
func (c *TalosCluster) registerLeaves(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	for i, n := range args.nodes() {
		req := request.Leave{Common: args.commonRequest(ctx), Node: requestNodes([]ClusterNode{n})[0]}
		req.Timeout = leaveTimeout

		if n.isControlPlane() {
			req.Protected = args.Protect
			req.Backup = args.Backup
		}

		ca := c.secrets.MachineSecrets.Certs().Os()
		stdin := pulumi.All(ca.Cert(), ca.Key()).ApplyT(func(values []any) (string, error) {
			certificate, certificateErr := base64.StdEncoding.DecodeString(values[0].(string))
			key, keyErr := base64.StdEncoding.DecodeString(values[1].(string))

			if errors.Join(certificateErr, keyErr) != nil {
				return "", errors.New("the Talos authority in the machine secrets is not base64") // the errors may quote it
			}

			req.Authority = &talos.Authority{Certificate: certificate, Key: key}

			return req.Keep()
		}).(pulumi.StringOutput)

		leave, err := onOwnStack(func() (*local.Command, error) {
			return local.NewCommand(ctx, n.Name+tokens.OfLeave, &local.CommandArgs{
				Delete:                 pulumi.String(talosopsexec.Command(ctx) + "leave"),
				Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
				AddPreviousOutputInEnv: pulumi.Bool(false),
				Logging:                local.LoggingStderr,
			},
				pulumi.Parent(c), ignoreLogging(),
				pulumi.DependsOn([]pulumi.Resource{c.nodes[i].vm, c.nodes[i].configuration, c.bootstrap}),
				pulumi.ReplaceWith([]pulumi.Resource{c.nodes[i].vm}),
				pulumi.DeletedWith(c.secrets),
			)
		})
		if err != nil {
			return err
		}

		c.leaves = append(c.leaves, leave)
	}

	return nil
}
