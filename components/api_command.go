package components

import (
	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/talosopsexec"
)

// ProxmoxSettings returns the settings of the provider proxmoxve in the stack's configuration, for requests of
// talosops. They include secrets.
func ProxmoxSettings(ctx *pulumi.Context) map[string]string {
	return proxmoxapi.Configured(func(key string) string {
		value, _ := ctx.GetConfig("proxmoxve:" + key)

		return value
	})
}

// apiCommand is a command that makes something on Proxmox with a verb of talosops, and removes it with the same
// request.
type apiCommand struct {
	// provenance replaces what it made when it changes; other changes of the request run the verb again, which finds its
	// work done.
	verb, provenance string
	request          pulumi.StringOutput
	// follows runs the verb again when it changes; empty = nothing but the request does.
	follows string
}

func registerAPICommand(
	ctx *pulumi.Context, name string, c apiCommand, opts ...pulumi.ResourceOption,
) (*local.Command, error) {
	args := &local.CommandArgs{
		Create:                 pulumi.String(talosopsexec.Command(ctx) + c.verb),
		Delete:                 pulumi.String(talosopsexec.Command(ctx) + c.verb + " --remove"),
		Stdin:                  pulumi.ToSecret(c.request).(pulumi.StringOutput),
		Triggers:               pulumi.Array{pulumi.String(c.provenance)},
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Logging:                local.LoggingStderr,
	}

	if c.follows != "" {
		args.Environment = pulumi.StringMap{TriggerVariable: pulumi.String(c.follows)}
	}

	return onOwnStack(func() (*local.Command, error) {
		return local.NewCommand(ctx, name, args, append(opts, ignoreLogging())...)
	})
}
