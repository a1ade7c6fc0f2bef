// Package hosts has the verbs about Proxmox hosts, which it reaches by SSH: their facts, the reboot that completes
// their preparation, and the program's scripts.
package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const (
	defaultDialTimeout = 15 * time.Second
	defaultStepTimeout = 2 * time.Minute
	// maxOutput bounds a host's output; facts of a large host have some 100 KiB.
	maxOutput = 8 << 20
)

// hostShell is the address and SSH settings of a Proxmox host.
type hostShell struct{ request.Shell }

func (h hostShell) problems(path string) (problems problem.List) {
	if h.Name == "" {
		problems.Add(path+".name", nil, "is missing: set the host's name in Proxmox")
	}

	if !h.Address.IsValid() {
		problems.Add(path+".address", nil, "is missing: set the host's")
	}

	if h.Port < 0 || h.Port > 65535 {
		problems.Add(path+".port", h.Port, "is not a TCP port: use 1 to 65535, or omit it for 22")
	}

	switch _, err := h.hostKey(); {
	case h.HostKey == "" && !h.AcceptAnyHostKey:
		problems.Add(path+".hostKey", nil,
			"is missing: set what `ssh-keyscan -t ed25519 %s` prints after the address, or acceptAnyHostKey", h.Address)
	case h.HostKey != "" && err != nil:
		problems.Add(path+".hostKey", nil,
			"is not a public key: set its type and base64 as ssh-keyscan prints them after the address")
	}

	return problems
}

func (h hostShell) hostKey() (ssh.PublicKey, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(h.HostKey)) //nolint:dogsled // the key is all that counts

	return key, err
}

func (h hostShell) withDefaults() hostShell {
	if h.Port == 0 {
		h.Port = 22
	}

	if h.User == "" {
		h.User = "root"
	}

	return h
}

// hostLogin authenticates to a host: by a private key, or the keys of the SSH agent.
type hostLogin struct {
	method ssh.AuthMethod
	close  func()
}

// newHostLogin parses a private key in PEM form; empty means the SSH agent. The key must not appear in any message.
func newHostLogin(privateKey string) (hostLogin, error) {
	if privateKey != "" {
		signer, err := ssh.ParsePrivateKey([]byte(privateKey))
		if missing := new(ssh.PassphraseMissingError); errors.As(err, &missing) {
			return hostLogin{}, errors.New(
				"the private key is encrypted: use one without a passphrase, or add it to the SSH agent",
			)
		}

		if err != nil {
			return hostLogin{}, errors.New("the private key cannot be read: provide it in PEM form, as ssh-keygen writes it")
		}

		return hostLogin{method: ssh.PublicKeys(signer), close: func() {}}, nil
	}

	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return hostLogin{}, errors.New(
			"there is neither a private key nor an SSH agent: set the key, or start an agent (SSH_AUTH_SOCK) and ssh-add it",
		)
	}

	conn, err := net.Dial("unix", socket) //nolint:gosec // the user's own agent
	if err != nil {
		return hostLogin{}, fmt.Errorf(
			"unable to reach the SSH agent: %w: start it, or unset SSH_AUTH_SOCK and set a private key", err,
		)
	}

	return hostLogin{
		method: ssh.PublicKeysCallback(agent.NewClient(conn).Signers), close: func() { _ = conn.Close() },
	}, nil
}

// withLogin calls work with a login.
func withLogin(privateKey string, work func(hostLogin) (any, error)) (any, error) {
	login, err := newHostLogin(privateKey)
	if err != nil {
		return nil, err
	}
	defer login.close()

	return work(login)
}

// hostLimits bound the two steps of a call.
type hostLimits struct{ dial, step time.Duration }

func (l *hostLimits) parse(dial, step string) (problems problem.List) {
	l.dial = verb.ParseDuration("dialTimeout", dial, defaultDialTimeout, &problems)
	l.step = verb.ParseDuration("stepTimeout", step, defaultStepTimeout, &problems)

	return problems
}

// dial connects and authenticates.
func (h hostShell) dial(ctx context.Context, login hostLogin, limit time.Duration) (*ssh.Client, error) {
	h = h.withDefaults()
	//nolint:gosec // the user's explicit choice, else replaced below
	config := &ssh.ClientConfig{
		User: h.User, Auth: []ssh.AuthMethod{login.method}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	}
	if h.HostKey != "" {
		key, err := h.hostKey()
		if err != nil {
			return nil, fmt.Errorf("unable to read the host key of %s: %w", h.Name, err)
		}

		config.HostKeyCallback, config.HostKeyAlgorithms = ssh.FixedHostKey(key), hostKeyAlgorithms(key)
	}

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	address := net.JoinHostPort(h.Address.String(), strconv.Itoa(h.Port))

	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf(
			"%s does not answer at %s: %w: is it switched on, and does its SSH server run?", h.Name, address, err,
		)
	}

	return h.handshake(ctx, conn, address, config)
}

// handshake authenticates on a connection, and closes it on failure.
func (h hostShell) handshake(
	ctx context.Context, conn net.Conn, address string, config *ssh.ClientConfig,
) (*ssh.Client, error) {
	// It takes no context: closing its connection ends it.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })

	secure, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if !stop() && err == nil {
		err = ctx.Err()
	}

	if err != nil {
		_ = conn.Close()

		return nil, h.loginError(ctx, address, err)
	}

	return ssh.NewClient(secure, channels, requests), nil
}

func (h hostShell) loginError(ctx context.Context, address string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s at %s did not finish the handshake in time: %w", h.Name, address, ctx.Err())
	case strings.Contains(err.Error(), "host key mismatch"), strings.Contains(
		err.Error(), "no common algorithm for host key",
	):
		return fmt.Errorf("%s at %s shows another host key than the configured one: compare with /etc/ssh/ssh_host_*_key.pub on the host, then correct hostKey", h.Name, address)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Errorf(
			"%s at %s does not let %s in with this key: add its public half to ~/.ssh/authorized_keys there", h.Name, address,
			h.User,
		)
	default:
		return fmt.Errorf("unable to log in to %s at %s: %w", h.Name, address, err)
	}
}

// hostKeyAlgorithms returns the signature algorithms of a host key.
func hostKeyAlgorithms(key ssh.PublicKey) []string {
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}

	return []string{key.Type()}
}

// run executes a command with a script on its standard input, over its own connection, and returns its output.
func (h hostShell) run(
	ctx context.Context, login hostLogin, limits hostLimits, command, script string,
) (string, error) {
	client, err := h.dial(ctx, login, limits.dial)
	if err != nil {
		return "", err
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it

	ctx, cancel := context.WithTimeout(ctx, limits.step)
	defer cancel()

	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()

	timeoutError := func() error { return fmt.Errorf("%s did not answer within %s: %w", h.Name, limits.step, ctx.Err()) }
	session, err := client.NewSession()

	if ctx.Err() != nil {
		return "", timeoutError()
	}

	if err != nil {
		return "", fmt.Errorf("unable to open a session on %s: %w", h.Name, err)
	}

	defer session.Close() //nolint:errcheck // nothing is lost with it

	stdout, stderr := &limitedBuffer{}, &limitedBuffer{}

	session.Stdin, session.Stdout, session.Stderr = strings.NewReader(script), stdout, stderr
	if err := session.Run(command); err != nil {
		if ctx.Err() != nil {
			return "", timeoutError()
		}

		if missing := new(ssh.ExitMissingError); errors.As(err, &missing) {
			return stdout.String(), fmt.Errorf("%s: %w", h.Name, errConnectionLost)
		}

		if message := lastLines(stderr.String()); message != "" {
			return "", fmt.Errorf("%s says: %s", h.Name, message)
		}

		return "", fmt.Errorf("the command on %s ended early: %w", h.Name, err)
	}

	return stdout.String(), nil
}

// errConnectionLost says that a connection ended before its command did.
var errConnectionLost = errors.New("the connection was lost")

// limitedBuffer holds up to maxOutput bytes.
type limitedBuffer struct{ bytes.Buffer }

// Write fails if the limit would be exceeded.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, io.ErrShortBuffer
	}

	return b.Buffer.Write(p)
}

// lastLines returns the errors that a script printed, or its last line.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")

	var errorLines []string

	for _, line := range lines {
		if message, found := strings.CutPrefix(line, "error: "); found {
			errorLines = append(errorLines, message)
		}
	}

	if len(errorLines) > 0 {
		return strings.Join(errorLines, "; ")
	}

	return lines[len(lines)-1]
}
