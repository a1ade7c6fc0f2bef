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

// registerAPICommand registers a command that makes something on Proxmox with a verb of talosops, and removes it with
// the same request. Another provenance replaces what it made; other changes of the request run the verb again, which
// finds its work done.
func registerAPICommand(
	ctx *pulumi.Context, name, verb, provenance string, request pulumi.StringOutput, opts ...pulumi.ResourceOption,
) (*local.Command, error) {
	return local.NewCommand(ctx, name, &local.CommandArgs{
		Create:                 pulumi.String(talosopsexec.Command(ctx) + verb),
		Delete:                 pulumi.String(talosopsexec.Command(ctx) + verb + " --remove"),
		Stdin:                  pulumi.ToSecret(request).(pulumi.StringOutput),
		Triggers:               pulumi.Array{pulumi.String(provenance)},
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Logging:                local.LoggingStderr,
	}, append(opts, ignoreLogging())...)
}
