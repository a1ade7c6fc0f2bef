package components

import (
	"cmp"
	"net/netip"

	"github.com/pulumi/pulumi-command/sdk/go/command/remote"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/vmlookup"
)

// Limits of SSH connections: without them a command to a dead host hangs forever.
const (
	dialErrorLimit = 5
	perDialTimeout = 15 // seconds
)

// HostShell is the SSH connection to a Proxmox host.
type HostShell struct {
	// The host's address: 10.0.0.2.
	Address netip.Addr `pulumi:"address" provider:"type=go@1:netip:text"`
	// TCP port. Default: 22.
	Port int `pulumi:"port,optional"`
	// The user to log in as, who must be allowed to run qm. Default: root.
	User string `pulumi:"user,optional"`
	// The host's public key in authorized_keys form, as ssh-keyscan prints it without the host's name. Default: none, any
	// host key is accepted.
	HostKey string `pulumi:"hostKey,optional"`
	// The private key in PEM form, secret. Default: the keys of the SSH agent at SSH_AUTH_SOCK.
	PrivateKey pulumi.StringPtrInput `pulumi:"privateKey,optional" provider:"secret"`
}

func (h HostShell) withDefaults() HostShell {
	h.Port, h.User = cmp.Or(h.Port, 22), cmp.Or(h.User, "root")

	return h
}

func (h HostShell) connection() remote.ConnectionArgs {
	connection := remote.ConnectionArgs{
		Host:           pulumi.String(h.Address.String()),
		Port:           pulumi.Float64(h.Port),
		User:           pulumi.String(h.User),
		PrivateKey:     h.PrivateKey,
		DialErrorLimit: pulumi.Int(dialErrorLimit),
		PerDialTimeout: pulumi.Int(perDialTimeout),
	}
	if h.HostKey != "" {
		connection.HostKey = pulumi.String(h.HostKey)
	}

	return connection
}

func (h HostShell) request(node string) request.Shell {
	return request.Shell{
		Name: node, Address: h.Address, Port: h.Port, User: h.User, HostKey: h.HostKey, AcceptAnyHostKey: h.HostKey == "",
	}
}

// stackPath returns project/stack, the owner in templates and prepared hosts.
func stackPath(ctx *pulumi.Context) string { return ctx.Project() + "/" + ctx.Stack() }

// stackOwner returns the stack's identity for markers.
func stackOwner(ctx *pulumi.Context) ownership.Owner {
	return ownership.Of(ctx.Organization(), ctx.Project(), ctx.Stack(), vmlookup.FromContext(ctx).StackID)
}
