// Package proxmox is Proxmox VE 9.2's REST API over the lab's model: TLS, HTTP/1.1 with PVE's own reason phrases,
// tickets and API tokens.
package proxmox

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"talos-proxmox/lab/datacentre"
)

// Options says how the API is served.
type Options struct {
	// Host is the Proxmox host whose API this is; the data centre's first one by default. Every host serves the whole
	// cluster.
	Host string
	// Certificate is what the server shows; without one, CA signs one, or it signs one itself.
	Certificate *tls.Certificate
	// CA signs the server's certificate: a certificate with its private key.
	CA *tls.Certificate
	// Names are DNS names and addresses for the made certificate, beside the loopback ones.
	Names []string
	// Stats counts requests; servers of one data centre may share it.
	Stats *Stats
}

// Server serves the API on any number of listeners.
type Server struct {
	dc     *datacentre.Datacentre
	host   string
	tls    *tls.Config
	ca     *tls.Certificate // nil = the certificate signed itself
	routes *router
	stats  *Stats
	// broken is why there is no certificate.
	broken error

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	mu        sync.Mutex
	listeners map[net.Listener]bool
	conns     map[net.Conn]bool
}

// New returns a server over the data centre. Where no certificate can be made, Serve says so.
func New(dc *datacentre.Datacentre, o Options) *Server {
	s := &Server{
		dc:        dc,
		host:      o.Host,
		stats:     o.Stats,
		ca:        o.CA,
		routes:    newRouter(),
		listeners: map[net.Listener]bool{},
		conns:     map[net.Conn]bool{},
	}
	if s.host == "" {
		s.host = dc.Hosts()[0].Name
	}

	if s.stats == nil {
		s.stats = NewStats()
	}

	cert := o.Certificate
	if cert == nil {
		cert, s.broken = newCertificate(o.CA, s.host, o.Names)
	}

	if s.broken == nil {
		s.tls = &tls.Config{
			Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		}
	}

	s.ctx, s.stop = context.WithCancel(context.Background())

	return s
}

// Stats returns the server's request counters.
func (s *Server) Stats() *Stats { return s.stats }

// Serve accepts connections until Close; then it returns nil.
func (s *Server) Serve(ln net.Listener) error {
	if s.broken != nil {
		return errors.Join(s.broken, ln.Close())
	}

	s.mu.Lock()

	if s.ctx.Err() != nil {
		s.mu.Unlock()

		return ln.Close()
	}

	s.listeners[ln] = true
	s.mu.Unlock()

	for {
		conn, err := ln.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}

			return err
		}

		if !s.keep(conn) {
			_ = conn.Close()

			return nil
		}

		go s.serveConn(conn)
	}
}

// keep remembers a connection, unless the server is closed.
func (s *Server) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ctx.Err() != nil {
		return false
	}

	s.conns[conn] = true
	s.done.Add(1)

	return true
}

func (s *Server) forget(conn net.Conn) {
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()

	_ = conn.Close()

	s.done.Done()
}

// Close ends all listeners and connections and waits for their handlers.
func (s *Server) Close() error {
	s.mu.Lock()
	s.stop()

	for ln := range s.listeners {
		_ = ln.Close()
	}

	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()

	s.done.Wait()

	return nil
}
