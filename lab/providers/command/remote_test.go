package command_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/shell"
)

// host is the lab's own SSH server.
type host struct {
	dc      *datacentre.Datacentre
	root    string
	port    int
	hostKey string
	private ed25519.PrivateKey
}

func newKey(t *testing.T) (ed25519.PrivateKey, ssh.Signer) {
	t.Helper()

	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)

	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)

	return private, signer
}

func startHost(t *testing.T) *host {
	t.Helper()

	h := &host{root: t.TempDir()}
	_, hostKey := newKey(t)
	private, client := newKey(t)
	h.private, h.hostKey = private, string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(hostKey.PublicKey())))

	var err error

	h.dc, err = datacentre.Open(datacentre.Options{
		Hosts:     []datacentre.HostOptions{{Name: "pve1", Root: h.root}},
		Clock:     datacentre.NewClock(10000),
		Durations: datacentre.DefaultDurations(),
	})
	require.NoError(t, err)
	h.dc.Put(datacentre.Users, "root@pam", datacentre.Config{"password": "secret"})
	t.Cleanup(func() { assert.NoError(t, h.dc.Close()) })

	s, err := shell.New(
		h.dc, "pve1",
		shell.Options{HostKey: hostKey, AuthorizedKeys: [][]byte{ssh.MarshalAuthorizedKey(client.PublicKey())}},
	)
	require.NoError(t, err)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	go s.Serve(listener) //nolint:errcheck

	t.Cleanup(func() { assert.NoError(t, s.Close()) })

	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)

	h.port, err = strconv.Atoi(port)
	require.NoError(t, err)

	return h
}

func (h *host) key(t *testing.T) string {
	t.Helper()

	block, err := ssh.MarshalPrivateKey(h.private, "")
	require.NoError(t, err)

	return string(pem.EncodeToMemory(block))
}

func (h *host) connection(t *testing.T, change map[string]any) map[string]any {
	t.Helper()

	c := map[string]any{"host": "127.0.0.1", "port": h.port, "privateKey": h.key(t), "hostKey": h.hostKey}

	for name, value := range change {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}

	return c
}

func TestRemoteCommands(t *testing.T) {
	t.Parallel()

	h := startHost(t)
	_, stranger := newKey(t)
	otherHost := string(ssh.MarshalAuthorizedKey(stranger.PublicKey()))

	tests := map[string]struct {
		connection     map[string]any
		inputs         map[string]any
		stdout, stderr string
		refusal        string
	}{
		"runs on the host": {
			inputs: map[string]any{"create": "hostname; echo err >&2"}, stdout: "pve1", stderr: "err",
		},
		"passes standard input": {
			inputs: map[string]any{"create": `eval "$(cat)"`, "stdin": "echo $((1+2))"}, stdout: "3",
		},
		"trusts any host without a key": {
			connection: map[string]any{"hostKey": nil}, inputs: map[string]any{"create": "hostname"}, stdout: "pve1",
		},
		"fails with what the host said": {
			inputs:  map[string]any{"create": "qm status 100"},
			refusal: "running \"qm status 100\":\nConfiguration file 'nodes/pve1/qemu-server/100.conf' does not exist",
		},
		"refuses another host": {
			connection: map[string]any{"hostKey": otherHost, "dialErrorLimit": 0},
			inputs:     map[string]any{"create": "hostname"},
			refusal:    "after 0 failed attempts: ssh: handshake failed: ssh: host key mismatch",
		},
		"refuses a host key that is not": {
			connection: map[string]any{"hostKey": "x"},
			inputs:     map[string]any{"create": "hostname"},
			refusal:    "failed to parse host key",
		},
		"refuses a key that is not": {
			connection: map[string]any{"privateKey": "x"},
			inputs:     map[string]any{"create": "hostname"},
			refusal:    "failed to read the private key",
		},
		"gives up on a closed port": {
			connection: map[string]any{"port": 1, "dialErrorLimit": 1},
			inputs:     map[string]any{"create": "hostname"},
			refusal:    "after 1 failed attempts",
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := map[string]any{"connection": h.connection(t, test.connection)}
			for k, v := range test.inputs {
				in[k] = v
			}

			created, err := create(t, server(t.Context(), t), remoteType, inputs(in))
			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, test.stdout, created.Properties.Get("stdout").AsString())
			assert.Equal(t, test.stderr, created.Properties.Get("stderr").AsString())
			assert.True(t, created.Properties.Get("connection").Secret())
		})
	}
}

func TestConnectionsAreSecretAndHaveDefaults(t *testing.T) {
	t.Parallel()

	s := server(t.Context(), t)
	checked := check(
		t, s, remoteType, inputs(map[string]any{"create": "x", "connection": map[string]any{"host": "127.0.0.1"}}),
	)

	connection := checked.Get("connection")
	assert.True(t, connection.Secret())

	c := connection.AsMap()
	assert.Equal(t, "root", c.Get("user").AsString())
	assert.InDelta(t, 22, c.Get("port").AsNumber(), 0)
	assert.InDelta(t, 10, c.Get("dialErrorLimit").AsNumber(), 0)
	assert.InDelta(t, 15, c.Get("perDialTimeout").AsNumber(), 0)
}

//nolint:paralleltest // the environment is the process's
func TestTheAgentsKeys(t *testing.T) {
	h := startHost(t)
	keys := agent.NewKeyring()
	require.NoError(t, keys.Add(agent.AddedKey{PrivateKey: h.private}))

	socket := filepath.Join(t.TempDir(), "agent")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			go agent.ServeAgent(keys, conn) //nolint:errcheck
		}
	}()

	t.Setenv("SSH_AUTH_SOCK", socket)

	in := inputs(
		map[string]any{"create": "hostname", "connection": h.connection(t, map[string]any{"privateKey": nil})},
	)
	created, err := create(t, server(t.Context(), t), remoteType, in)
	require.NoError(t, err)
	assert.Equal(t, "pve1", created.Properties.Get("stdout").AsString())
}

func TestACancelledRemoteCommandEnds(t *testing.T) {
	t.Parallel()

	h := startHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := server(ctx, t)

	done := make(chan error, 1)

	go func() {
		_, err := s.Create(p.CreateRequest{Urn: urn(remoteType), Properties: inputs(map[string]any{
			"create": "touch $HOST_ROOT/started; sleep 1000; touch $HOST_ROOT/went-on", "connection": h.connection(t, nil),
		})})
		done <- err
	}()

	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(h.root, "started"))

		return err == nil
	}, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.NoFileExists(t, filepath.Join(h.root, "went-on"))
}
