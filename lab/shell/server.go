// Package shell is the shell of a Proxmox host: an SSH server that runs scripts in a root folder. The lab's model
// implements Proxmox' own commands.
package shell

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
	"talos-proxmox/lab/proxmox"
)

// Options configures a Server.
type Options struct {
	// HostKey is the server's host key.
	HostKey gossh.Signer
	// AuthorizedKeys are root's public keys, each a line of authorized_keys. There is no other login.
	AuthorizedKeys [][]byte
}

// Server is the SSH server of one host.
type Server struct {
	dc   *datacentre.Datacentre
	host string
	// root is the host's folder: scripts open absolute paths in it, and it contains their HOME and TMPDIR. Programs
	// that a script starts get paths unchanged; the variable HOST_ROOT is the folder.
	root string
	ssh  *ssh.Server
	// system is the operating system in the root, api is what pvesh calls.
	system hostos.System
	api    *proxmox.Local
}

const rootUser = "root"

// New creates the shell server of a host.
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
	s.root = s.currentHost().Root

	if err := s.install(); err != nil {
		return nil, fmt.Errorf("the shell of host %q: %w", host, err)
	}

	s.ssh = &ssh.Server{
		Handler: s.session,
		PublicKeyHandler: func(ctx ssh.Context, key ssh.PublicKey) bool {
			return ctx.User() == rootUser &&
				slices.ContainsFunc(keys, func(k gossh.PublicKey) bool { return ssh.KeysEqual(k, key) })
		},
		PtyCallback:       func(ssh.Context, ssh.Pty) bool { return false },
		SubsystemHandlers: map[string]ssh.SubsystemHandler{"sftp": s.sftp},
		ChannelHandlers:   map[string]ssh.ChannelHandler{"session": restrictedSession},
	}
	s.ssh.AddHostKey(o.HostKey)

	return s, nil
}

// Serve accepts connections until Close; then it returns nil.
func (s *Server) Serve(ln net.Listener) error {
	err := s.ssh.Serve(ln)
	if errors.Is(err, ssh.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}

	return err
}

// Close closes listeners and connections, which interrupts running commands.
func (s *Server) Close() error {
	err := s.ssh.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}

	return err
}

// install installs the operating system, and stubs that `command -v` finds.
func (s *Server) install() error {
	if err := s.system.Install(s.currentHost()); err != nil {
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
			"#!/bin/sh\necho '%s: the lab supports this command only when a script calls it directly' >&2\nexit 126\n", name,
		)
		//nolint:gosec // `command -v` requires an executable
		if err := os.WriteFile(filepath.Join(s.root, "usr/sbin", name), []byte(stub), 0o700); err != nil {
			return err
		}
	}

	return nil
}

func (s *Server) currentHost() datacentre.Host {
	h, _ := s.dc.Host(s.host)

	return h
}

// sleep waits for a modelled duration.
func (s *Server) sleep(ctx context.Context, d time.Duration) error { return s.dc.Clock().Sleep(ctx, d) }
