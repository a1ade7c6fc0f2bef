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

const (
	defaultPort           = 22
	defaultDialErrorLimit = 10
	defaultPerDialTimeout = 15 // seconds
	unlimited             = -1
)

// connection says how the remote host is reached.
type connection struct {
	hop

	Proxy *proxy `pulumi:"proxy,optional"`
}

// proxy is a host that connections go through.
type proxy struct{ hop }

// hop is one SSH server.
type hop struct {
	User               *string  `pulumi:"user,optional"`
	Password           *string  `pulumi:"password,optional" provider:"secret"`
	Host               *string  `pulumi:"host"`
	Port               *float64 `pulumi:"port,optional"`
	PrivateKey         *string  `pulumi:"privateKey,optional" provider:"secret"`
	PrivateKeyPassword *string  `pulumi:"privateKeyPassword,optional" provider:"secret"`
	AgentSocketPath    *string  `pulumi:"agentSocketPath,optional"`
	DialErrorLimit     *int     `pulumi:"dialErrorLimit,optional"`
	PerDialTimeout     *int     `pulumi:"perDialTimeout,optional"`
	HostKey            *string  `pulumi:"hostKey,optional"`
}

// Annotate states the published defaults.
func (c *connection) Annotate(a infer.Annotator) {
	a.SetDefault(&c.User, "root")
	a.SetDefault(&c.Port, defaultPort)
	a.SetDefault(&c.DialErrorLimit, defaultDialErrorLimit)
	a.SetDefault(&c.PerDialTimeout, defaultPerDialTimeout)
}

// Annotate states the published defaults.
func (c *proxy) Annotate(a infer.Annotator) {
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

func (h hop) address() string {
	return net.JoinHostPort(value(h.Host, ""), strconv.Itoa(int(value(h.Port, defaultPort))))
}

func (h hop) timeout() time.Duration {
	return time.Duration(value(h.PerDialTimeout, defaultPerDialTimeout)) * time.Second
}

// config is recreated for every dial: agents hand out their signers over their own connection, which closing ends.
func (h hop) config() (config *ssh.ClientConfig, closing func(), err error) {
	//nolint:gosec // as published, without a hostKey
	config = &ssh.ClientConfig{
		User: value(h.User, "root"), Timeout: h.timeout(), HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	}
	closing = func() {}

	if h.HostKey != nil {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(*h.HostKey))
		if err != nil {
			return nil, nil, fmt.Errorf(
				"failed to parse host key: %w: write it as in known_hosts, without the name: ssh-ed25519 AAAA…", err,
			)
		}

		config.HostKeyCallback, config.HostKeyAlgorithms = ssh.FixedHostKey(key), []string{key.Type()}
	}

	if h.PrivateKey != nil {
		signer, err := h.signer()
		if err != nil {
			return nil, nil, fmt.Errorf(
				"failed to read the private key: %w: provide it in PEM form, with privateKeyPassword if it is encrypted", err,
			)
		}

		config.Auth = append(config.Auth, ssh.PublicKeys(signer))
	}

	if h.Password != nil {
		config.Auth = append(config.Auth, ssh.Password(*h.Password), ssh.KeyboardInteractive(h.answerAll))
	}

	socket := value(h.AgentSocketPath, os.Getenv("SSH_AUTH_SOCK"))
	if socket == "" {
		return config, closing, nil
	}

	conn, err := net.Dial("unix", socket) //nolint:gosec // the user sets the socket
	if err != nil {
		return nil, nil, fmt.Errorf("failed to reach the SSH agent: %w: start it, or unset SSH_AUTH_SOCK", err)
	}

	config.Auth = append(config.Auth, ssh.PublicKeysCallback(agent.NewClient(conn).Signers))

	return config, func() { _ = conn.Close() }, nil
}

func (h hop) signer() (ssh.Signer, error) {
	if h.PrivateKeyPassword != nil {
		return ssh.ParsePrivateKeyWithPassphrase([]byte(*h.PrivateKey), []byte(*h.PrivateKeyPassword))
	}

	return ssh.ParsePrivateKey([]byte(*h.PrivateKey))
}

func (h hop) answerAll(_, _ string, questions []string, _ []bool) ([]string, error) {
	answers := make([]string, len(questions))
	for i := range answers {
		answers[i] = *h.Password
	}

	return answers, nil
}

// dialer opens the network connection below SSH: from here, or from a proxy.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// connect dials once.
func (h hop) connect(ctx context.Context, dial dialer) (*ssh.Client, error) {
	config, closing, err := h.config()
	if err != nil {
		return nil, err
	}
	defer closing()

	if timeout := h.timeout(); timeout > 0 {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}

	conn, err := dial(ctx, "tcp", h.address())
	if err != nil {
		return nil, err
	}

	// The handshake knows no context: closing the connection under it ends it.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })

	secure, channels, requests, err := ssh.NewClientConn(conn, h.address(), config)
	if !stop() && err == nil {
		err = ctx.Err()
	}

	if err != nil {
		_ = conn.Close()

		return nil, err
	}

	return ssh.NewClient(secure, channels, requests), nil
}

// persist dials until it succeeds or dialErrorLimit is passed.
func (h hop) persist(ctx context.Context, what string, dial dialer) (*ssh.Client, error) {
	limit := value(h.DialErrorLimit, defaultDialErrorLimit)

	// What is set wrong stays wrong: only the network is worth another try.
	_, closing, err := h.config()
	if err != nil {
		return nil, err
	}

	closing()

	var last error

	done, client, err := retry.Until(ctx, retry.Acceptor{Accept: func(try int, _ time.Duration) (bool, any, error) {
		client, err := h.connect(ctx, dial)
		if err == nil {
			return true, client, nil
		}

		last = err
		if limit > unlimited && try+1 > limit {
			return true, nil, fmt.Errorf("after %d failed attempts: %w", try, last)
		}

		p.GetLogger(ctx).InfoStatusf("%s %d/%s failed: retrying", what, try+1, limitText(limit))

		return false, nil, nil
	}})

	if client, ok := client.(*ssh.Client); ok && done && err == nil {
		return client, nil
	}

	if err == nil {
		err = fmt.Errorf("%w, last: %w", ctx.Err(), last)
	}

	return nil, fmt.Errorf("connecting to %s: %w: check that its SSH server runs and takes the key", h.address(), err)
}

func limitText(limit int) string {
	if limit == unlimited {
		return "inf"
	}

	return strconv.Itoa(limit)
}

// dial connects, through the proxy where there is one. The function it returns ends every connection it made.
func (c *connection) dial(ctx context.Context) (client *ssh.Client, closing func(), err error) {
	if c.Proxy == nil {
		client, err := c.persist(ctx, "Dial", loopback.Dial)
		if err != nil {
			return nil, nil, err
		}

		return client, func() { _ = client.Close() }, nil
	}

	through, err := c.Proxy.persist(ctx, "Dial proxy", loopback.Dial)
	if err != nil {
		return nil, nil, fmt.Errorf("proxy: %w", err)
	}

	client, err = c.persist(ctx, "Dial from proxy", through.DialContext)
	if err != nil {
		_ = through.Close()

		return nil, nil, fmt.Errorf("proxy: %w", err)
	}

	return client, func() {
		_ = client.Close()
		_ = through.Close()
	}, nil
}
