package engine_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"

	"github.com/gliderlabs/ssh"
	"github.com/stretchr/testify/require"
	gossh "golang.org/x/crypto/ssh"
)

// sshAccess is what a client needs to read the repository over SSH.
type sshAccess struct{ url, identity, knownHosts string }

// ssh serves the repository over SSH, read-only, to the holder of one key.
func (g *gitServer) ssh() sshAccess {
	g.t.Helper()

	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(g.t, err)

	_, host, err := ed25519.GenerateKey(nil)
	require.NoError(g.t, err)

	signer, err := gossh.NewSignerFromKey(host)
	require.NoError(g.t, err)

	allowed, err := gossh.NewPublicKey(public)
	require.NoError(g.t, err)

	block, err := gossh.MarshalPrivateKey(private, "")
	require.NoError(g.t, err)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(g.t, err)

	repository := filepath.Join(filepath.Dir(g.work), "fleet.git")
	server := &ssh.Server{
		PublicKeyHandler: func(_ ssh.Context, key ssh.PublicKey) bool {
			return bytes.Equal(key.Marshal(), allowed.Marshal())
		},
		Handler: func(s ssh.Session) {
			if c := s.Command(); len(c) != 2 || c[0] != "git-upload-pack" || c[1] != "/fleet.git" {
				_ = s.Exit(1)

				return
			}

			cmd := exec.CommandContext(s.Context(), "git-upload-pack", repository)
			cmd.Stdout, cmd.Stderr = s, s.Stderr()

			// Not as Stdin: the command would wait for the client's EOF, and the client for the command's exit.
			input, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}

			if err == nil {
				go func() { _, _ = io.Copy(input, s) }()

				err = cmd.Wait()
			}

			if err != nil {
				_ = s.Exit(1)
			}
		},
	}
	server.AddHostKey(signer)

	go func() { _ = server.Serve(listener) }()

	g.t.Cleanup(func() { _ = server.Close() })

	address := listener.Addr().(*net.TCPAddr) //nolint:forcetypeassert // of TCP

	return sshAccess{
		url: fmt.Sprintf("ssh://git@%s/fleet.git", address), identity: string(pem.EncodeToMemory(block)),
		knownHosts: fmt.Sprintf("[%s]:%d %s", address.IP, address.Port, gossh.MarshalAuthorizedKey(signer.PublicKey())),
	}
}
