// Package providers has stand-ins for the published provider plugins, which engines start like those.
package providers

import (
	"context"
	"crypto/x509"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	pcontext "github.com/pulumi/pulumi-go-provider/middleware/context"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"

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

// fromEnvironment returns the options that the engine passed to this plugin.
func fromEnvironment() Options {
	poll, _ := time.ParseDuration(os.Getenv(pollVariable)) //nolint:errcheck // nothing set

	return Options{Poll: poll, ServiceAccountKey: []byte(os.Getenv(keyVariable)), Crash: os.Getenv(crashVariable) != ""}
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

	provider, err := fromEnvironment().standIn(plugin.Name, nil, command.Options{})
	if err == nil {
		err = p.RunProvider(context.Background(), plugin.Name, plugin.Version, provider)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(0)
}

// standIn returns a new provider. Proxmox' certificates are verified by roots (nil = the system's).
func (o Options) standIn(name string, roots *x509.CertPool, commands command.Options) (provider p.Provider, err error) {
	switch name {
	case "proxmoxve":
		provider = proxmoxve.Provider(o.Poll, roots)
	case "talos":
		provider = talos.Provider(o.ServiceAccountKey)
	default:
		provider, err = command.Provider(commands)
	}

	// The published proxmoxve and talos are bridges: their calls continue when the connection closes.
	if name != "command" {
		provider = pcontext.Wrap(provider, context.WithoutCancel)
	}

	if o.Crash {
		provider.Cancel = func(context.Context) error {
			os.Exit(1)

			return nil
		}
	}

	return provider, err
}

// AttachVariable tells the Pulumi CLI which providers run already, and where.
const AttachVariable = "PULUMI_DEBUG_PROVIDERS"

// Attached are stand-ins that this process serves to an engine, which attaches to them instead of starting plugins: a
// start takes a third of a second of processor time.
type Attached struct {
	// Debug is the value of the engine's variable [AttachVariable].
	Debug   string
	close   []func() error
	servers sync.Map // of connections
}

// Attach serves the stand-ins on loopback. Proxmox' certificates are verified by roots.
func (o Options) Attach(roots *x509.CertPool, commands command.Options) (*Attached, error) {
	attached := &Attached{}

	for _, plugin := range Plugins() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			attached.Close()

			return nil, fmt.Errorf("unable to serve the stand-in of %s: %w", plugin.Name, err)
		}

		attached.close = append(attached.close, listener.Close)
		attached.Debug += fmt.Sprintf(",%s:%d", plugin.Name, listener.Addr().(*net.TCPAddr).Port)

		go attached.accept(listener, func() (pulumirpc.ResourceProviderServer, error) {
			provider, err := o.standIn(plugin.Name, roots, commands)
			if err != nil {
				return nil, err
			}

			return p.RawServer(plugin.Name, plugin.Version, provider)(nil)
		})
	}

	attached.Debug = strings.TrimPrefix(attached.Debug, ",")

	return attached, nil
}

// accept gives each connection a provider of its own, as an engine starts a plugin for each instance that it needs, and
// ends one without the others.
func (a *Attached) accept(listener net.Listener, provider func() (pulumirpc.ResourceProviderServer, error)) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return // closed
		}

		p, err := provider()
		if err != nil {
			_ = connection.Close()

			continue
		}

		server := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32))
		pulumirpc.RegisterResourceProviderServer(server, p)
		a.servers.Store(server, nil)

		go server.Serve(&single{Listener: listener, connection: connection}) //nolint:errcheck // ends with the server
	}
}

// Close ends the stand-ins.
func (a *Attached) Close() {
	for _, end := range a.close {
		_ = end()
	}

	a.servers.Range(func(server, _ any) bool {
		server.(*grpc.Server).Stop()

		return true
	})
}

// single is a listener of one connection.
type single struct {
	net.Listener

	connection net.Conn
	once       sync.Once
}

// Accept returns the connection, and later that there is none.
func (s *single) Accept() (connection net.Conn, err error) {
	err = net.ErrClosed

	s.once.Do(func() { connection, err = s.connection, nil })

	return connection, err
}

// Close leaves the real listener open.
func (*single) Close() error { return nil }
