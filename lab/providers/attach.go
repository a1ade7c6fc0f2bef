// Package providers serves the stand-ins for the published provider plugins to Pulumi engines.
package providers

import (
	"context"
	"fmt"
	"strings"
	"time"

	p "github.com/pulumi/pulumi-go-provider"

	"talos-proxmox/lab/providers/command"
	"talos-proxmox/lab/providers/internal/serve"
	"talos-proxmox/lab/providers/proxmoxve"
	"talos-proxmox/lab/providers/talos"
)

// Option changes what the stand-ins are started with.
type Option func(*options)

type options struct {
	around command.Surroundings
	poll   time.Duration
	talos  talos.Options
	hasty  bool
}

// WithDir says where local commands run: the folder an engine would have started the plugin in,
// the program's.
func WithDir(dir string) Option { return func(o *options) { o.around.Dir = dir } }

// WithPoll says how often Proxmox is asked for a task's state: proxmoxve.DefaultPoll without it.
func WithPoll(poll time.Duration) Option { return func(o *options) { o.poll = poll } }

// WithEnv gives the stand-ins environment variables: those the engine's process has and this one has not. Local
// commands get them, and the authorities in the file SSL_CERT_FILE are trusted.
func WithEnv(env map[string]string) Option { return func(o *options) { o.around.Env = env } }

// WithServiceAccountKey has new clusters share a key for their service accounts: talos.Options.
func WithServiceAccountKey(key []byte) Option {
	return func(o *options) { o.talos.ServiceAccountKey = key }
}

// WithHastyClose has the engine complain, as it does of published plugins when it gives them too little time to leave,
// that each has crashed.
func WithHastyClose() Option { return func(o *options) { o.hasty = true } }

// Attach starts the stand-ins on loopback and returns the value of PULUMI_DEBUG_PROVIDERS with which an engine uses
// them instead of installed plugins. They serve any number of engines, one after another and at once. The function it
// returns stops them; running calls are cancelled.
func Attach(ctx context.Context, opts ...Option) (debugProviders string, stop func(), err error) {
	var (
		entries []string
		stops   []func()
	)

	var o options
	for _, opt := range opts {
		opt(&o)
	}

	stop = func() {
		for _, s := range stops {
			s()
		}
	}

	for _, provider := range standIns(o) {
		port, stopOne, err := serve.Start(ctx, provider)
		if err != nil {
			stop()

			return "", nil, err
		}

		stops = append(stops, stopOne)
		entries = append(entries, fmt.Sprintf("%s:%d", provider.Name, port))
	}

	return strings.Join(entries, ","), stop, nil
}

// standIns carry the versions of the plugins that they stand in for.
func standIns(o options) []serve.Provider {
	constructors := map[string]func() (p.Provider, error){
		"proxmoxve": func() (p.Provider, error) { //nolint:unparam // one of three kinds
			return proxmoxve.Provider(proxmoxve.Options{Poll: o.poll, CertFile: o.around.Env["SSL_CERT_FILE"]}), nil
		},
		"talos": func() (p.Provider, error) { //nolint:unparam // one of three kinds
			return talos.Provider(o.talos), nil
		},
		"command": o.around.Provider,
	}

	var list []serve.Provider

	for _, plugin := range Plugins() {
		construct := constructors[plugin.Name]
		if o.hasty {
			construct = complained(plugin.Name, construct)
		}

		list = append(list, serve.Provider{Name: plugin.Name, Version: plugin.Version, New: construct})
	}

	return list
}

// complained says, when the engine disconnects, what the Pulumi CLI says of a plugin whose answer to that it did
// not wait for. It cannot say so itself of a provider that it did not start.
func complained(name string, construct func() (p.Provider, error)) func() (p.Provider, error) {
	return func() (p.Provider, error) {
		provider, err := construct()
		leave := provider.Cancel
		provider.Cancel = func(ctx context.Context) error {
			p.GetLogger(ctx).Errorf(
				"Detected that /nowhere/pulumi-resource-%s exited prematurely. \n       This is *always* a bug in the provider.",
				name,
			)

			if leave == nil {
				return nil
			}

			return leave(ctx)
		}

		return provider, err
	}
}
