package shell_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/server"
	"talos-proxmox/lab/shell"
)

const isoVolume = "local:iso/talos-v1.12.6-nocloud-amd64.img"

var talosImage = image.Image{OS: "talos", Version: "v1.12.6", Schematic: "abc", Platform: "nocloud", Arch: "amd64"}

// host is a host with a shell, and root's SSH client.
type host struct {
	dc      *datacentre.Datacentre
	root    string
	address string
	key     ssh.Signer
	client  *ssh.Client
}

func signer(t *testing.T) ssh.Signer {
	t.Helper()

	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)

	s, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)

	return s
}

type hostOptions struct {
	speed float64
	// hardware changes the host's options.
	hardware func(*datacentre.HostOptions)
	// cluster is the name of the cluster; empty for a standalone host.
	cluster string
	// noImage skips the download of an image, which takes as long as everything else.
	noImage bool
	// others are hosts in addition to pve1 and pve2, without shells.
	others []string
}

func start(t *testing.T, o hostOptions) *host {
	t.Helper()

	h := &host{root: filepath.Join(t.TempDir(), "pve1"), key: signer(t)}

	hardware := datacentre.HostOptions{Name: "pve1", Cores: 12, Root: h.root}
	if o.hardware != nil {
		o.hardware(&hardware)
	}

	var err error

	hosts := []datacentre.HostOptions{hardware}
	for _, name := range append([]string{"pve2"}, o.others...) {
		hosts = append(hosts, datacentre.HostOptions{Name: name, Root: h.root + "-" + name})
	}

	h.dc, err = datacentre.Open(datacentre.Options{
		Hosts: hosts, Cluster: o.cluster, Clock: datacentre.NewClock(o.speed), Durations: datacentre.DefaultDurations(),
		Fetch: func(context.Context, string) ([]byte, error) { return talosImage.Encode(), nil },
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.dc.Close()) })

	h.dc.Put(datacentre.Users, "root@pam", datacentre.Config{"password": "secret"})

	sh, err := shell.New(h.dc, "pve1", shell.Options{
		HostKey:        signer(t),
		AuthorizedKeys: [][]byte{ssh.MarshalAuthorizedKey(h.key.PublicKey())},
	})
	require.NoError(t, err)

	for _, other := range h.dc.Hosts()[1:] {
		require.NoError(t, hostos.System{}.Install(other))
	}

	require.NoError(t, h.dc.SetHostSystem(hostos.System{}))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	served := make(chan error, 1)

	host := server.NewHostListener(listener)
	h.dc.OnHostPower("pve1", host.Power)

	go func() { served <- sh.Serve(host) }()

	h.address = listener.Addr().String()
	h.client = h.dial(t, "root", h.key)

	t.Cleanup(func() {
		assert.NoError(t, sh.Close())
		assert.NoError(t, <-served)
	})

	if o.noImage {
		return h
	}

	upid, err := h.dc.Download("root@pam", "pve1", "local", datacentre.Config{
		"url": "http://127.0.0.1/x.img", "content": "iso", "filename": strings.TrimPrefix(isoVolume, "local:iso/"),
	})
	require.NoError(t, err)

	task, err := h.dc.WaitTask(t.Context(), upid)
	require.NoError(t, err)
	require.Equal(t, "OK", task.ExitStatus)

	return h
}

func fast(t *testing.T) *host {
	t.Helper()

	return start(t, hostOptions{speed: 10000})
}

func (h *host) config(user string, key ssh.Signer) *ssh.ClientConfig {
	//nolint:gosec // a test
	return &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	}
}

func (h *host) dial(t *testing.T, user string, key ssh.Signer) *ssh.Client {
	t.Helper()

	client, err := ssh.Dial("tcp", h.address, h.config(user, key))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })

	return client
}

// run runs a command and returns its output and exit status.
func (h *host) run(t *testing.T, command, stdin string) (stdout, stderr string, status int) {
	t.Helper()

	session, err := h.client.NewSession()
	require.NoError(t, err)

	defer session.Close() //nolint:errcheck

	var out, errOut bytes.Buffer

	session.Stdin, session.Stdout, session.Stderr = strings.NewReader(stdin), &out, &errOut

	return result(t, session.Run(command), &out, &errOut)
}

func result(t *testing.T, err error, out, errOut *bytes.Buffer) (string, string, int) {
	t.Helper()

	var exit *ssh.ExitError

	switch {
	case err == nil:
		return out.String(), errOut.String(), 0
	case errors.As(err, &exit):
		return out.String(), errOut.String(), exit.ExitStatus()
	default:
		require.NoError(t, err)

		return "", "", -1
	}
}
