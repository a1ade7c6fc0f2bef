// Package talosapi is a client of the Talos API of each machine on its own address: its version, services,
// configuration and GPUs, its member of etcd, upgrades and resets. It returns what it finds; callers decide what that
// means.
package talosapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/backup"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kubeupgrade"
)

// ErrTalosconfig says what a talosconfig needs, without quoting what was read.
var ErrTalosconfig = errors.New("it is not a Talos client configuration with a current context, certificate and key: send the talosconfig output of the stack")

// API is the Talos API of a machine at its own address.
type API interface {
	Version(ctx context.Context, address netip.Addr) (string, error)
	Schematic(ctx context.Context, address netip.Addr) (string, error)
	Services(ctx context.Context, address netip.Addr) ([]Service, error)
	BootID(ctx context.Context, address netip.Addr) (string, error)
	Reboot(ctx context.Context, address netip.Addr, devices bool) error
	GPUMachine(ctx context.Context, address netip.Addr) (GPUMachine, error)

	Configuration(ctx context.Context, address netip.Addr) (active, persistent string, err error)
	DryRun(ctx context.Context, address netip.Addr, configuration []byte) (DryRunResult, error)
	Apply(ctx context.Context, address netip.Addr, configuration []byte) error
	Try(ctx context.Context, address netip.Addr, configuration []byte, period time.Duration) error
	Provision(ctx context.Context, address netip.Addr, config *tls.Config, configuration []byte) error
	Reconfigure(ctx context.Context, address netip.Addr, configuration []byte) error

	Install(ctx context.Context, address netip.Addr, installer string) error
	Upgrade(ctx context.Context, address netip.Addr, installer string, devices bool) error
	Failures(ctx context.Context, address netip.Addr) <-chan string
	Reset(ctx context.Context, address netip.Addr) error

	Bootstrap(ctx context.Context, address netip.Addr) error
	HasEtcdData(ctx context.Context, address netip.Addr) (bool, error)
	Members(ctx context.Context, address netip.Addr) ([]Member, error)
	EtcdStatus(ctx context.Context, address netip.Addr) (EtcdStatus, error)
	EtcdAlarms(ctx context.Context, address netip.Addr) ([]string, error)
	ForfeitLeadership(ctx context.Context, address netip.Addr) error
	LeaveEtcd(ctx context.Context, address netip.Addr) error
	RemoveMember(ctx context.Context, address netip.Addr, id uint64) error
	Snapshot(ctx context.Context, address netip.Addr, to io.Writer) error
	Database(ctx context.Context, address netip.Addr, to io.Writer) error
	Origin(ctx context.Context, address netip.Addr, configuration string) (backup.Origin, error)
	EtcdWipe(ctx context.Context, address netip.Addr) (EtcdWipe, error)
	WipeEtcd(ctx context.Context, address netip.Addr, partition string) error
	Recover(ctx context.Context, address netip.Addr, snapshot io.Reader) error

	Kubeconfig(ctx context.Context, address netip.Addr) (string, error)
	KubernetesImages(ctx context.Context, address netip.Addr) (kubeupgrade.Images, error)
	KubeletStart(ctx context.Context, address netip.Addr) (string, error)

	Close()
}

// Client keeps a connection per node, and closes it after an error, because gRPC's own reconnects back off for too
// long.
type Client struct {
	config *clientconfig.Config

	mu      sync.Mutex
	clients map[netip.Addr]*client.Client
}

// New returns a client with the credentials of a talosconfig. It drops the parser's errors, which quote the text.
func New(talosconfig string) (*Client, error) {
	config, err := clientconfig.FromString(talosconfig)
	if err != nil || config == nil {
		return nil, ErrTalosconfig
	}

	current, ok := config.Contexts[config.Context]
	if !ok || current == nil || current.CA == "" {
		return nil, ErrTalosconfig
	}

	if certificate, err := client.CertificateFromConfigContext(current); err != nil || certificate == nil {
		return nil, ErrTalosconfig
	}

	return &Client{config: config, clients: map[netip.Addr]*client.Client{}}, nil
}

// Close closes all connections; the next call opens a new one.
func (t *Client) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()

	for address, c := range t.clients {
		_ = c.Close()

		delete(t.clients, address)
	}
}

var errEmptyAnswer = errors.New("the answer is empty")

func (t *Client) dial(ctx context.Context, address netip.Addr) (*client.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if c, ok := t.clients[address]; ok {
		return c, nil
	}
	// No proxy: everything else in this program connects to nodes directly, too.
	c, err := client.New(
		ctx, client.WithConfig(t.config), client.WithEndpoints(address.String()),
		client.WithGRPCDialOptions(grpc.WithNoProxy()),
	)
	if err != nil {
		return nil, fmt.Errorf("unable to connect to Talos on %s: %w", address, err)
	}

	t.clients[address] = c

	return c, nil
}

func (t *Client) drop(address netip.Addr, c *client.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.clients[address] == c {
		_ = c.Close()

		delete(t.clients, address)
	}
}

// disconnect closes the connection to a machine; the next call opens a new one.
func (t *Client) disconnect(address netip.Addr) {
	t.mu.Lock()
	c := t.clients[address]
	t.mu.Unlock()

	if c != nil {
		t.drop(address, c)
	}
}

// rpcError is a gRPC error reduced to its message.
type rpcError struct{ status *status.Status }

// Error leaves out the diff of machine configurations, secrets included, that Talos appends when it refuses a mode.
func (r rpcError) Error() string {
	message, _, _ := strings.Cut(r.status.Message(), "\ndiff:")

	return message
}

// GRPCStatus lets status.Code find the code.
func (r rpcError) GRPCStatus() *status.Status { return r.status }

// call makes one call, within the timeout of a call.
func (t *Client) call(ctx context.Context, address netip.Addr, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, checks.CallTimeout)
	defer cancel()

	return t.callLong(ctx, address, do)
}

// callLong is call without a timeout of its own.
func (t *Client) callLong(
	ctx context.Context, address netip.Addr, do func(context.Context, *client.Client) error,
) error {
	c, err := t.dial(ctx, address)
	if err != nil {
		return err
	}

	if err := do(ctx, c); err != nil {
		t.drop(address, c)

		return rpcError{status.Convert(err)}
	}

	return nil
}
