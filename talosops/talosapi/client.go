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
	"strings"
	"sync"

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
	Version(ctx context.Context, address string) (string, error)
	Schematic(ctx context.Context, address string) (string, error)
	Services(ctx context.Context, address string) ([]Service, error)
	BootID(ctx context.Context, address string) (string, error)
	Reboot(ctx context.Context, address string, devices bool) error
	GPUMachine(ctx context.Context, address string) (GPUMachine, error)

	Configuration(ctx context.Context, address string) (active, persistent string, err error)
	DryRun(ctx context.Context, address string, configuration []byte) (DryRunResult, error)
	Apply(ctx context.Context, address string, configuration []byte) error
	Provision(ctx context.Context, address string, config *tls.Config, configuration []byte) error
	Reconfigure(ctx context.Context, address string, configuration []byte) error

	Install(ctx context.Context, address, installer string) error
	Upgrade(ctx context.Context, address, installer string, devices bool) error
	Failures(ctx context.Context, address string) <-chan string
	Reset(ctx context.Context, address string) error

	Bootstrap(ctx context.Context, address string) error
	HasEtcdData(ctx context.Context, address string) (bool, error)
	Members(ctx context.Context, address string) ([]Member, error)
	EtcdStatus(ctx context.Context, address string) (EtcdStatus, error)
	EtcdAlarms(ctx context.Context, address string) ([]string, error)
	ForfeitLeadership(ctx context.Context, address string) error
	LeaveEtcd(ctx context.Context, address string) error
	RemoveMember(ctx context.Context, address string, id uint64) error
	Snapshot(ctx context.Context, address string, to io.Writer) error
	Database(ctx context.Context, address string, to io.Writer) error
	Origin(ctx context.Context, address, configuration string) (backup.Origin, error)
	EtcdWipe(ctx context.Context, address string) (EtcdWipe, error)
	WipeEtcd(ctx context.Context, address, partition string) error
	Recover(ctx context.Context, address string, snapshot io.Reader) error

	Kubeconfig(ctx context.Context, address string) (string, error)
	KubernetesImages(ctx context.Context, address string) (kubeupgrade.Images, error)
	KubeletStart(ctx context.Context, address string) (string, error)

	Close()
}

// Client keeps a connection per node, and closes it after an error, because gRPC's own reconnects back off for too
// long.
type Client struct {
	config *clientconfig.Config

	mu      sync.Mutex
	clients map[string]*client.Client
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

	return &Client{config: config, clients: map[string]*client.Client{}}, nil
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

func (t *Client) dial(ctx context.Context, address string) (*client.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if c, ok := t.clients[address]; ok {
		return c, nil
	}
	// No proxy: everything else in this program connects to nodes directly, too.
	c, err := client.New(
		ctx, client.WithConfig(t.config), client.WithEndpoints(address), client.WithGRPCDialOptions(grpc.WithNoProxy()),
	)
	if err != nil {
		return nil, fmt.Errorf("unable to connect to Talos on %s: %w", address, err)
	}

	t.clients[address] = c

	return c, nil
}

func (t *Client) drop(address string, c *client.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.clients[address] == c {
		_ = c.Close()

		delete(t.clients, address)
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
func (t *Client) call(ctx context.Context, address string, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, checks.CallTimeout)
	defer cancel()

	return t.callLong(ctx, address, do)
}

// callLong is call without a timeout of its own.
func (t *Client) callLong(ctx context.Context, address string, do func(context.Context, *client.Client) error) error {
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
