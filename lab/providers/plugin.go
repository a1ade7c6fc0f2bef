// Package providers has stand-ins for the published provider plugins, which engines start like those.
package providers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	pcontext "github.com/pulumi/pulumi-go-provider/middleware/context"

	"talos-proxmox/lab/providers/command"
	"talos-proxmox/lab/providers/proxmoxve"
	"talos-proxmox/lab/providers/talos"
)

// Environment variables with the options of stand-ins.
const (
	pollVariable  = "LAB_POLL"
	keyVariable   = "LAB_SERVICE_ACCOUNT_KEY"
	crashVariable = "LAB_PLUGINS_CRASH"
)

// Options configure the stand-ins.
type Options struct {
	// Poll is the interval at which the status of a task is read; 0 = proxmoxve.DefaultPoll.
	Poll time.Duration
	// ServiceAccountKey is the RSA key in PEM of new clusters' service accounts. Empty = each cluster generates its
	// own, which takes seconds of processor time.
	ServiceAccountKey []byte
	// Crash makes plugins exit before they respond to the engine's last call: the CLI reports that of published plugins
	// to which it gives too little time.
	Crash bool
}

// Environment returns the environment variables for engines, which pass them to stand-ins.
func (o Options) Environment() map[string]string {
	env := map[string]string{pollVariable: o.Poll.String(), keyVariable: string(o.ServiceAccountKey)}
	if o.Crash {
		env[crashVariable] = "true"
	}

	return env
}

// RunAsPlugin serves a stand-in and exits if this program was started under the name of its plugin. Like a published
// plugin, it survives a killed engine and finishes what it has begun.
func RunAsPlugin() {
	name := filepath.Base(os.Args[0])

	i := slices.IndexFunc(Plugins(), func(plugin Plugin) bool { return plugin.Program() == name })
	if i < 0 {
		return
	}

	plugin := Plugins()[i]

	provider, err := newStandIn(plugin.Name)
	if err == nil {
		err = p.RunProvider(context.Background(), plugin.Name, plugin.Version, provider)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(0)
}

// newStandIn returns a provider with the options of the environment.
func newStandIn(name string) (provider p.Provider, err error) {
	switch name {
	case "proxmoxve":
		poll, _ := time.ParseDuration(os.Getenv(pollVariable)) //nolint:errcheck // nothing set
		provider = proxmoxve.Provider(poll)
	case "talos":
		provider = talos.Provider([]byte(os.Getenv(keyVariable)))
	default:
		provider, err = command.Provider()
	}

	// The published proxmoxve and talos are bridges: their calls continue when the connection closes.
	if name != "command" {
		provider = pcontext.Wrap(provider, context.WithoutCancel)
	}

	if os.Getenv(crashVariable) != "" {
		provider.Cancel = func(context.Context) error {
			os.Exit(1)

			return nil
		}
	}

	return provider, err
}
