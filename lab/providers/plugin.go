// Package providers has the stand-ins for the published provider plugins, which engines start as they start those.
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

// Environment variables in which stand-ins find their options.
const (
	pollVariable  = "LAB_POLL"
	keyVariable   = "LAB_SERVICE_ACCOUNT_KEY"
	crashVariable = "LAB_PLUGINS_CRASH"
)

// Options change what the stand-ins do.
type Options struct {
	// Poll is how often Proxmox is asked for a task's state; 0 = proxmoxve.DefaultPoll.
	Poll time.Duration
	// ServiceAccountKey is an RSA key in PEM that new clusters get for their service accounts; without it each gets one of
	// its own, which takes seconds of processor time.
	ServiceAccountKey []byte
	// Crash has plugins exit when an engine is done with them, before they have answered: the CLI says of published
	// plugins to which it gives too little time that they did.
	Crash bool
}

// Environment is what engines hand to the stand-ins that they start.
func (o Options) Environment() map[string]string {
	env := map[string]string{pollVariable: o.Poll.String(), keyVariable: string(o.ServiceAccountKey)}
	if o.Crash {
		env[crashVariable] = "true"
	}

	return env
}

// RunAsPlugin serves a stand-in if this program was started under the name of its plugin, and then ends the program.
// Like a published plugin it outlives an engine that is killed, and finishes what it has begun.
func RunAsPlugin() {
	name := filepath.Base(os.Args[0])

	i := slices.IndexFunc(Plugins(), func(plugin Plugin) bool { return plugin.Program() == name })
	if i < 0 {
		return
	}

	plugin := Plugins()[i]

	provider, err := standIn(plugin.Name)
	if err == nil {
		err = p.RunProvider(context.Background(), plugin.Name, plugin.Version, provider)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(0)
}

// standIn makes the provider with the options of the environment.
func standIn(name string) (provider p.Provider, err error) {
	switch name {
	case "proxmoxve":
		poll, _ := time.ParseDuration(os.Getenv(pollVariable)) //nolint:errcheck // nothing set
		provider = proxmoxve.Provider(poll)
	case "talos":
		provider = talos.Provider([]byte(os.Getenv(keyVariable)))
	default:
		provider, err = command.Provider()
	}

	// The published proxmoxve and talos are bridges, whose calls do not end with their connection.
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
