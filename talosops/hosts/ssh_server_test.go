package hosts

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/internal/request"
)

// commandHandler is a host's response to a command. A status below zero drops the connection.
type commandHandler func(command, stdin string) (stdout, stderr string, status int)

// sshHost fakes the SSH server of a Proxmox host.
type sshHost struct {
	hostShell

	mutex   sync.Mutex
	answer  commandHandler
	calls   []string // actions that were requested
	dials   int
	refuses bool // connections are closed at once
}

// newKey returns a private key in PEM form and its public half in authorized_keys form.
func newKey(t *testing.T) (private, public string, signer ssh.Signer) {
	t.Helper()

	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	require.NoError(t, err)
	signer, err = ssh.NewSignerFromKey(key)
	require.NoError(t, err)

	return string(pem.EncodeToMemory(block)), strings.TrimSpace(
		string(ssh.MarshalAuthorizedKey(signer.PublicKey())),
	), signer
}

// startHost serves a host that accepts this key.
func startHost(t *testing.T, name, authorized string, answer commandHandler) *sshHost {
	t.Helper()
	_, hostKey, signer := newKey(t)
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) != authorized {
			return nil, io.ErrUnexpectedEOF
		}

		return &ssh.Permissions{}, nil
	}}
	config.AddHostKey(signer)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	address, ok := listener.Addr().(*net.TCPAddr)
	require.True(t, ok)

	h := &sshHost{
		hostShell: hostShell{
			request.Shell{Name: name, Address: address.AddrPort().Addr(), Port: address.Port, HostKey: hostKey},
		},
		answer: answer,
	}

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			go h.serve(conn, config)
		}
	}()

	return h
}

func (h *sshHost) serve(conn net.Conn, config *ssh.ServerConfig) {
	defer conn.Close() //nolint:errcheck // a test's

	h.mutex.Lock()
	h.dials++
	refuses := h.refuses
	h.mutex.Unlock()

	if refuses {
		return
	}

	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}

	go ssh.DiscardRequests(requests)

	for incoming := range channels {
		channel, requests, err := incoming.Accept()
		if err != nil {
			return
		}

		for request := range requests {
			if request.Type != "exec" {
				_ = request.Reply(false, nil)

				continue
			}

			_ = request.Reply(true, nil)
			if !h.exec(channel, string(request.Payload[4:])) {
				return // drop the connection
			}

			_ = channel.Close()
		}
	}
}

func (h *sshHost) exec(channel ssh.Channel, command string) bool {
	stdin, _ := io.ReadAll(channel)
	action, _, _ := strings.Cut(strings.TrimPrefix(command, "action="), " ")

	h.mutex.Lock()
	h.calls = append(h.calls, action)
	answer := h.answer
	h.mutex.Unlock()

	stdout, stderr, status := answer(command, string(stdin))
	_, _ = io.WriteString(channel, stdout)
	_, _ = io.WriteString(channel.Stderr(), stderr)

	if status < 0 {
		return false
	}
	//nolint:gosec // small
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))

	return true
}

func (h *sshHost) actions() []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()

	return append([]string(nil), h.calls...)
}

// prints returns a handler that prints a text.
func prints(text string) commandHandler {
	return func(string, string) (string, string, int) { return text, "", 0 }
}

// hangs returns a handler that lasts until the end of the test.
func hangs(t *testing.T) commandHandler {
	done := make(chan struct{})

	t.Cleanup(func() { close(done) })

	return func(string, string) (string, string, int) {
		<-done

		return "", "", 0
	}
}
