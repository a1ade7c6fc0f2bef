package command

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/retry"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"talos-proxmox/lab/loopback"
)

// The published defaults.
const (
	defaultPort           = 22
	defaultDialErrorLimit = 10
	defaultPerDialTimeout = 15 // seconds
)

// connection says how the remote host is reached. Without a private key the keys of the SSH agent at SSH_AUTH_SOCK are
// tried; without a host key any host is trusted.
type connection struct {
	User           *string  `pulumi:"user,optional"`
	Host           *string  `pulumi:"host"`
	Port           *float64 `pulumi:"port,optional"`
	PrivateKey     *string  `pulumi:"privateKey,optional" provider:"secret"`
	DialErrorLimit *int     `pulumi:"dialErrorLimit,optional"`
	PerDialTimeout *int     `pulumi:"perDialTimeout,optional"`
	HostKey        *string  `pulumi:"hostKey,optional"`
}

// Annotate states the published defaults.
func (c *connection) Annotate(a infer.Annotator) {
	a.SetDefault(&c.User, "root")
	a.SetDefault(&c.Port, defaultPort)
	a.SetDefault(&c.DialErrorLimit, defaultDialErrorLimit)
	a.SetDefault(&c.PerDialTimeout, defaultPerDialTimeout)
}

// value returns what a pointer points to, or the default.
func value[T any](pointer *T, fallback T) T {
	if pointer == nil {
		return fallback
	}

	return *pointer
}

func (c *connection) address() string {
	return net.JoinHostPort(value(c.Host, ""), strconv.Itoa(int(value(c.Port, defaultPort))))
}

func (c *connection) timeout() time.Duration {
	return time.Duration(value(c.PerDialTimeout, defaultPerDialTimeout)) * time.Second
}

// config is recreated for every dial: agents hand out their signers over their own connection, which closing ends.
func (c *connection) config() (config *ssh.ClientConfig, closing func(), err error) {
	//nolint:gosec // as published, without a hostKey
	config = &ssh.ClientConfig{
		User: value(c.User, "root"), Timeout: c.timeout(), HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	}

	if c.HostKey != nil {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(*c.HostKey))
		if err != nil {
			return nil, nil, fmt.Errorf(
				"failed to parse host key: %w: write it as in known_hosts, without the name: ssh-ed25519 AAAA…", err,
			)
		}

		config.HostKeyCallback, config.HostKeyAlgorithms = ssh.FixedHostKey(key), []string{key.Type()}
	}

	if c.PrivateKey != nil {
		signer, err := ssh.ParsePrivateKey([]byte(*c.PrivateKey))
		if err != nil {
			return nil, nil, fmt.Errorf("failed to read the private key: %w: provide it in PEM form, without a password", err)
		}

		config.Auth = append(config.Auth, ssh.PublicKeys(signer))
	}

	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return config, func() {}, nil
	}

	conn, err := net.Dial("unix", socket) //nolint:gosec // the user sets the socket
	if err != nil {
		return nil, nil, fmt.Errorf("failed to reach the SSH agent: %w: start it, or unset SSH_AUTH_SOCK", err)
	}

	config.Auth = append(config.Auth, ssh.PublicKeysCallback(agent.NewClient(conn).Signers))

	return config, func() { _ = conn.Close() }, nil
}

// connect dials once.
func (c *connection) connect(ctx context.Context) (*ssh.Client, error) {
	config, closing, err := c.config()
	if err != nil {
		return nil, err
	}
	defer closing()

	if timeout := c.timeout(); timeout > 0 {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}

	conn, err := loopback.Dial(ctx, "tcp", c.address())
	if err != nil {
		return nil, err
	}

	// The handshake knows no context: closing the connection under it ends it.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })

	secure, channels, requests, err := ssh.NewClientConn(conn, c.address(), config)
	if !stop() && err == nil {
		err = ctx.Err()
	}

	if err != nil {
		_ = conn.Close()

		return nil, err
	}

	return ssh.NewClient(secure, channels, requests), nil
}

// dial connects until it succeeds or dialErrorLimit is passed.
func (c *connection) dial(ctx context.Context) (*ssh.Client, error) {
	limit := value(c.DialErrorLimit, defaultDialErrorLimit)

	// What is set wrong stays wrong: only the network is worth another try.
	_, closing, err := c.config()
	if err != nil {
		return nil, err
	}

	closing()

	var last error

	done, client, err := retry.Until(ctx, retry.Acceptor{Accept: func(try int, _ time.Duration) (bool, any, error) {
		client, err := c.connect(ctx)
		if err == nil {
			return true, client, nil
		}

		last = err
		if try+1 > limit {
			return true, nil, fmt.Errorf("after %d failed attempts: %w", try, last)
		}

		p.GetLogger(ctx).InfoStatusf("Dial %d/%d failed: retrying", try+1, limit)

		return false, nil, nil
	}})

	if client, ok := client.(*ssh.Client); ok && done && err == nil {
		return client, nil
	}

	if err == nil {
		err = fmt.Errorf("%w, last: %w", ctx.Err(), last)
	}

	return nil, fmt.Errorf("connecting to %s: %w: check that its SSH server runs and takes the key", c.address(), err)
}
