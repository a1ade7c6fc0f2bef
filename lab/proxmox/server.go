// Package proxmox is Proxmox VE 9.2's REST API over the lab's model: TLS, HTTP/1.1 with PVE's own reason phrases,
// tickets and API tokens.
package proxmox

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"talos-proxmox/lab/datacentre"
)

// Options says how the API is served.
type Options struct {
	// Host is the Proxmox host whose API this is; the data centre's first one by default. Every host serves the whole
	// cluster.
	Host string
	// CA signs the server's certificate: a certificate with its private key, one of the server's own by default.
	CA *tls.Certificate
	// Names are DNS names and addresses for the certificate, beside the loopback ones.
	Names []string
	// Stats counts requests; servers of one data centre may share it.
	Stats *Stats
}

// Server serves the API on any number of listeners.
type Server struct {
	dc     *datacentre.Datacentre
	host   string
	tls    *tls.Config
	ca     *tls.Certificate
	routes router
	stats  *Stats
	http   *http.Server

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup
}

// New returns a server over the data centre.
func New(dc *datacentre.Datacentre, o Options) (*Server, error) {
	s := &Server{dc: dc, host: o.Host, stats: o.Stats, ca: o.CA, routes: newRouter()}
	if s.host == "" {
		s.host = dc.Hosts()[0].Name
	}

	if s.stats == nil {
		s.stats = NewStats()
	}

	if s.ca == nil {
		certificate, key, err := NewCA()
		if err != nil {
			return nil, err
		}

		ca, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}

		s.ca = &ca
	}

	certificate, err := newCertificate(s.ca, s.host, o.Names)
	if err != nil {
		return nil, err
	}

	s.tls = &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}
	s.http = &http.Server{
		Handler: s, ConnContext: withConn, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // clients that leave, and those that trust nobody
	}
	s.ctx, s.stop = context.WithCancel(context.Background())

	return s, nil
}

// Serve accepts connections until Close; then it returns nil.
func (s *Server) Serve(ln net.Listener) error {
	err := s.http.Serve(listener{ln, s.tls})
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}

	return err
}

// Close ends all listeners and connections and waits for their handlers.
func (s *Server) Close() error {
	s.stop()

	err := s.http.Close()

	s.done.Wait()

	return err
}
