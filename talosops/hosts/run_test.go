package hosts

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// TestRunOverSSH runs commands over SSH. No output contains the private key.
func TestRunOverSSH(t *testing.T) {
	t.Parallel()

	private, public, _ := newKey(t)
	for name, test := range map[string]struct {
		answer commandHandler
		prints string
		fails  string
	}{
		"a command that prints": {answer: prints("one\ntwo\n"), prints: "one\ntwo\n"},
		"a command that fails": {
			answer: func(string, string) (string, string, int) { return "begun\n", "noise\nerror: VM 900 is locked\n", 1 },
			fails:  "pve1 says: VM 900 is locked",
		},
		"a command that fails without a word": {
			answer: func(string, string) (string, string, int) { return "", "", 3 },
			fails:  "the command on pve1 ended early: Process exited with status 3",
		},
		"a connection that ends before the command does": {
			answer: func(string, string) (string, string, int) { return "begun\n", "", -1 },
			fails:  "pve1: the connection was lost",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHost(t, "pve1", public, func(command, stdin string) (string, string, int) {
				assert.Equal(t, "bash -s", command)
				assert.Equal(t, "the-script\n", stdin)

				return test.answer(command, stdin)
			})
			stdout, stderr, err := runHost(
				t, "run", runRequest{PrivateKey: private, Host: h.hostShell, Command: "bash -s", Script: "the-script\n"},
			)
			assert.Equal(t, test.prints, stdout)
			assert.NotContains(t, stderr, "PRIVATE KEY")

			if test.fails == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, test.fails)
			assert.NotContains(t, err.Error(), "PRIVATE KEY")
		})
	}
}

// keptConn ignores Close.
type keptConn struct {
	net.Conn
	closed atomic.Int32
}

func (c *keptConn) Close() error {
	c.closed.Add(1)

	return nil
}

// TestAHandshakeThatSucceedsTooLateFails: the limit has passed, and the connection is closed under it.
func TestAHandshakeThatSucceedsTooLateFails(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)
	h := startHost(t, "pve1", public, prints(""))
	login, err := newHostLogin(private)
	require.NoError(t, err)

	address := net.JoinHostPort(h.Address.String(), strconv.Itoa(h.Port))
	open, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = open.Close() })

	conn := &keptConn{Conn: open}
	over, cancel := context.WithCancel(t.Context())
	cancel()

	config := &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{login.method}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	}
	client, err := h.handshake(over, conn, address, config)
	require.EqualError(t, err, "pve1 at "+address+" did not finish the handshake in time: context canceled")
	assert.Nil(t, client)
	assert.NotZero(t, conn.closed.Load())
}

func TestOutputIsLimited(t *testing.T) {
	t.Parallel()

	b := &limitedBuffer{}
	_, err := b.Write(make([]byte, maxOutput+1))
	require.ErrorIs(t, err, io.ErrShortBuffer)
	_, err = b.Write(make([]byte, maxOutput))
	require.NoError(t, err)
	_, err = b.Write([]byte{0})
	require.ErrorIs(t, err, io.ErrShortBuffer)
	assert.Equal(t, maxOutput, b.Len())
}
