// Package shell is the shell of a Proxmox host: an SSH server that runs scripts in a root folder, with Proxmox' own
// commands answered by the lab's model.
package shell

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
	"talos-proxmox/lab/proxmox"
)

// Options says who gets in.
type Options struct {
	// HostKey is what the server proves itself with.
	HostKey gossh.Signer
	// AuthorizedKeys are the public keys of root, each a line in authorized_keys form. There is no other way in.
	AuthorizedKeys [][]byte
}

// Server is the SSH server of one host.
type Server struct {
	dc   *datacentre.Datacentre
	host string
	// root is the host's folder: absolute paths that scripts open lie in it, and their HOME and TMPDIR. Programs that a
	// script starts get paths as the script writes them; it finds the folder in the variable HOST_ROOT.
	root string
	ssh  *ssh.Server
	// system is what is installed in the root, api what pvesh calls.
	system hostos.System
	api    *proxmox.Local
}

const rootUser = "root"

// New prepares the shell of a host of the data centre.
func New(dc *datacentre.Datacentre, host string, o Options) (*Server, error) {
	keys := make([]gossh.PublicKey, 0, len(o.AuthorizedKeys))

	for _, line := range o.AuthorizedKeys {
		key, _, _, _, err := gossh.ParseAuthorizedKey(line)
		if err != nil {
			return nil, fmt.Errorf("the shell of host %q: authorized key: %w: write it like ssh-ed25519 AAAA… name", host, err)
		}

		keys = append(keys, key)
	}

	s := &Server{dc: dc, host: host, api: proxmox.NewLocal(dc, host)}
	s.root = s.this().Root

	if err := s.furnish(); err != nil {
		return nil, fmt.Errorf("the shell of host %q: %w", host, err)
	}

	s.ssh = &ssh.Server{
		Handler: s.session,
		PublicKeyHandler: func(ctx ssh.Context, key ssh.PublicKey) bool {
			return ctx.User() == rootUser && contains(keys, key)
		},
		PtyCallback:       func(ssh.Context, ssh.Pty) bool { return false },
		SubsystemHandlers: map[string]ssh.SubsystemHandler{"sftp": s.sftp},
		ChannelHandlers:   map[string]ssh.ChannelHandler{"session": strictSessions},
	}
	s.ssh.AddHostKey(o.HostKey)

	return s, nil
}

func contains(keys []gossh.PublicKey, key gossh.PublicKey) bool {
	for _, k := range keys {
		if bytes.Equal(k.Marshal(), key.Marshal()) {
			return true
		}
	}

	return false
}

// Serve accepts connections until Close; then it returns nil.
func (s *Server) Serve(ln net.Listener) error {
	err := s.ssh.Serve(ln)
	if errors.Is(err, ssh.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}

	return err
}

// Close ends listeners and connections; the commands of those connections are interrupted.
func (s *Server) Close() error {
	err := s.ssh.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}

	return err
}

// furnish installs the operating system, and commands for `command -v` to find.
func (s *Server) furnish() error {
	if err := s.system.Furnish(s.this()); err != nil {
		return err
	}

	for _, name := range []string{
		"var/lib/vz/template/iso", "var/lib/vz/template/cache", "var/lib/vz/snippets", "var/lib/vz/import",
	} {
		if err := os.MkdirAll(filepath.Join(s.root, name), 0o700); err != nil {
			return err
		}
	}

	for name := range s.commands() {
		stub := fmt.Sprintf(
			"#!/bin/sh\necho '%s: the lab answers this command only where a script calls it itself' >&2\nexit 126\n", name,
		)
		//nolint:gosec // it has to look like a command
		if err := os.WriteFile(filepath.Join(s.root, "usr/sbin", name), []byte(stub), 0o700); err != nil {
			return err
		}
	}

	return nil
}
