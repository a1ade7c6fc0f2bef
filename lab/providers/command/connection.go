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

// connection are the inputs of an SSH connection. Without a private key, the keys of the SSH agent at SSH_AUTH_SOCK
// are tried; without a host key, any host is trusted.
type connection struct {
	User           *string  `pulumi:"user,optional"`
	Host           *string  `pulumi:"host"`
	Port           *float64 `pulumi:"port,optional"`
	PrivateKey     *string  `pulumi:"privateKey,optional" provider:"secret"`
	DialErrorLimit *int     `pulumi:"dialErrorLimit,optional"`
	PerDialTimeout *int     `pulumi:"perDialTimeout,optional"`
	HostKey        *string  `pulumi:"hostKey,optional"`
}

// Annotate sets the published defaults.
func (c *connection) Annotate(a infer.Annotator) {
	a.SetDefault(&c.User, "root")
	a.SetDefault(&c.Port, defaultPort)
	a.SetDefault(&c.DialErrorLimit, defaultDialErrorLimit)
	a.SetDefault(&c.PerDialTimeout, defaultPerDialTimeout)
}

// orDefault returns what a pointer points to, or the default.
func orDefault[T any](pointer *T, fallback T) T {
	if pointer == nil {
		return fallback
	}

	return *pointer
}

func (c *connection) address() string {
	return net.JoinHostPort(orDefault(c.Host, ""), strconv.Itoa(int(orDefault(c.Port, defaultPort))))
}

func (c *connection) timeout() time.Duration {
	return time.Duration(orDefault(c.PerDialTimeout, defaultPerDialTimeout)) * time.Second
}

// config is called for every dial: the signers of an agent need the agent's connection, which closeAgent closes.
func (c *connection) config() (config *ssh.ClientConfig, closeAgent func(), err error) {
	//nolint:gosec // as published, without a hostKey
	config = &ssh.ClientConfig{
		User: orDefault(c.User, "root"), Timeout: c.timeout(), HostKeyCallback: ssh.InsecureIgnoreHostKey(),
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
	config, closeAgent, err := c.config()
	if err != nil {
		return nil, err
	}
	defer closeAgent()

	if timeout := c.timeout(); timeout > 0 {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}

	conn, err := loopback.Dial(ctx, "tcp", c.address())
	if err != nil {
		return nil, err
	}

	// The handshake takes no context: closing the connection cancels it.
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

// dial retries until it is connected or dialErrorLimit is exceeded.
func (c *connection) dial(ctx context.Context) (*ssh.Client, error) {
	limit := orDefault(c.DialErrorLimit, defaultDialErrorLimit)

	// Invalid settings fail at once: only network errors are retried.
	_, closeAgent, err := c.config()
	if err != nil {
		return nil, err
	}

	closeAgent()

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
