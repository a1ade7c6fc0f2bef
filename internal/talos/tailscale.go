package talos

import "strings"

// TailscaleExtension is the extension that joins a machine to a tailnet.
const TailscaleExtension = "siderolabs/tailscale"

// Tailscale joins nodes to a tailnet.
type Tailscale struct {
	// AuthKey is the key that nodes register with, secret.
	AuthKey string
	// LoginServer is the URL of the control server; empty = Tailscale's.
	LoginServer string
	// Tags that nodes request; empty = those of the key.
	Tags []string
	// Routes are networks that control planes offer.
	Routes []string
}

// service configures the extension's service (containerboot's environment). Its state is on EPHEMERAL: a node registers
// once, and again after that was wiped. The kubelet and etcd keep to the node's own network, see nodeSubnets.
func (t *Tailscale) service(n NodeConfig) []object {
	if t == nil {
		return nil
	}

	environment := []string{"TS_AUTHKEY=" + t.AuthKey, "TS_AUTH_ONCE=true", "TS_HOSTNAME=" + n.Name}
	if len(t.Routes) > 0 && n.Role == RoleControlPlane {
		environment = append(environment, "TS_ROUTES="+strings.Join(t.Routes, ","))
	}

	var arguments []string
	if t.LoginServer != "" {
		arguments = append(arguments, "--login-server="+t.LoginServer)
	}

	if len(t.Tags) > 0 {
		arguments = append(arguments, "--advertise-tags="+strings.Join(t.Tags, ","))
	}

	if len(arguments) > 0 {
		environment = append(environment, "TS_EXTRA_ARGS="+strings.Join(arguments, " "))
	}

	return []object{document("ExtensionServiceConfig", object{"name": "tailscale", "environment": environment})}
}
