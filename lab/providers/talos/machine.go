package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/lab/loopback"
)

// The wait between two attempts doubles from the first to the last.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 2 * time.Second
)

// loopbackDialer restricts clients to this machine.
var loopbackDialer = client.WithGRPCDialOptions(
	grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return loopback.Dial(ctx, "tcp", address)
	}),
)

// target is a machine and its client configuration.
type target struct {
	node, endpoint string
	client         clientConfiguration
}

// call runs an operation with the client for the machine's mode: a machine in maintenance mode lists its disks for
// anyone, and accepts no client certificate yet.
func (t target) call(ctx context.Context, operation func(context.Context, *client.Client) error) error {
	nodeCtx := client.WithNode(ctx, t.node)

	// The certificate of a machine in maintenance mode is self-signed: nothing can verify it.
	//nolint:gosec
	insecure, err := t.connect(ctx, client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		return err
	}
	defer insecure.Close() //nolint:errcheck

	if _, err := insecure.Disks(nodeCtx); err == nil {
		return operation(nodeCtx, insecure)
	}

	config, err := t.client.talosconfig("dynamic")
	if err != nil {
		return err
	}

	secure, err := t.connect(ctx, client.WithConfig(config))
	if err != nil {
		return err
	}
	defer secure.Close() //nolint:errcheck

	return operation(nodeCtx, secure)
}

func (t target) connect(ctx context.Context, credentials client.OptionFunc) (*client.Client, error) {
	c, err := client.New(ctx, credentials, client.WithEndpoints(t.endpoint), loopbackDialer)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", t.endpoint, err)
	}

	return c, nil
}

// retry repeats the operation until it succeeds, the machine calls the request invalid, the timeout ends, or the
// engine cancels.
func (t target) retry(
	ctx context.Context, timeout time.Duration, action string, operation func(context.Context, *client.Client) error,
) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	var last error

	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := t.call(limited, operation)

		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s of %s: interrupted: %w", action, t.node, errors.Join(ctx.Err(), last))
		case limited.Err() == nil || last == nil:
			last = err
		}

		if status.Code(err) == codes.InvalidArgument {
			return fmt.Errorf("%s of %s: %w", action, t.node, err)
		}

		p.GetLogger(ctx).InfoStatusf("%s of %s: waiting: %s", action, t.node, status.Convert(err).Message())

		select {
		case <-ctx.Done():
			return fmt.Errorf("%s of %s: interrupted: %w", action, t.node, errors.Join(ctx.Err(), last))
		case <-limited.Done():
			return fmt.Errorf(
				"%s of %s: gave up after %s: %w: check that the machine runs and answers on %s", action, t.node, timeout, last,
				t.endpoint,
			)
		case <-time.After(wait):
		}
	}
}
