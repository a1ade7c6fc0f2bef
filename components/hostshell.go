package components

import (
	"net/netip"

	"github.com/pulumi/pulumi-command/sdk/go/command/remote"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/internal/spec"
)

// Limits of reaching a host's shell: without them a command to a dead host hangs for ever.
const (
	dialErrorLimit = 5
	perDialTimeout = 15 // seconds
)

// HostShell is how commands run on a Proxmox host.
type HostShell struct {
	Address netip.Addr
	SSH     spec.SSH
	// PrivateKey in PEM form, secret; nil = the keys of the SSH agent at SSH_AUTH_SOCK.
	PrivateKey pulumi.StringPtrInput
}

func (h HostShell) connection() remote.ConnectionArgs {
	connection := remote.ConnectionArgs{
		Host:           pulumi.String(h.Address.String()),
		Port:           pulumi.Float64(h.SSH.Port),
		User:           pulumi.String(h.SSH.User),
		PrivateKey:     h.PrivateKey,
		DialErrorLimit: pulumi.Int(dialErrorLimit),
		PerDialTimeout: pulumi.Int(perDialTimeout),
	}
	if h.SSH.HostKey != "" {
		connection.HostKey = pulumi.String(h.SSH.HostKey)
	}

	return connection
}
