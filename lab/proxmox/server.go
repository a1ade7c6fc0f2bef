// Package proxmox serves Proxmox VE 9.2's REST API for the lab's model: TLS, HTTP/1.1 with PVE's reason phrases,
// tickets and API tokens.
package proxmox

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"talos-proxmox/lab/datacentre"
)

// Options configures a server.
type Options struct {
	// Host is the Proxmox host that serves the API. Each host serves the whole cluster.
	Host string
	// CA is the certificate and private key that sign the server's certificate; by default a new one.
	CA *tls.Certificate
	// Names are DNS names and addresses of the certificate, in addition to loopback.
	Names []string
	// Stats counts requests; servers can share it.
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

	ctx      context.Context
	cancel   context.CancelFunc
	handlers sync.WaitGroup
}

// New returns a server for the data centre.
func New(dc *datacentre.Datacentre, o Options) (*Server, error) {
	s := &Server{dc: dc, host: o.Host, stats: o.Stats, ca: o.CA, routes: newRouter()}
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
		ErrorLog: log.New(io.Discard, "", 0), // aborted connections and handshakes
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())

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

// Close closes all listeners and connections and waits for their handlers.
func (s *Server) Close() error {
	s.cancel()

	err := s.http.Close()

	s.handlers.Wait()

	return err
}

const (
	// maxBodyBytes is more than PVE's limit for parameters, and enough for the lab's image files.
	maxBodyBytes = 64 << 20
	serverHeader = "pve-api-daemon/3.0"
)

// errReset resets the connection instead of responding.
var errReset = errors.New("connection reset")

// listener accepts TLS connections.
type listener struct {
	net.Listener
	tls *tls.Config
}

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	return &conn{Conn: tls.Server(raw, l.tls), raw: raw}, nil
}

// conn is a connection that writes PVE's reason phrases, which contain its errors: net/http writes only its own.
type conn struct {
	net.Conn
	raw net.Conn
	// reason is the reason phrase of the next response.
	reason string
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Write replaces the reason phrase in the status line, with which net/http's first write begins.
func (c *conn) Write(b []byte) (int, error) {
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	if c.reason == "" || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return c.Conn.Write(b)
	}

	version, _, _ := bytes.Cut(line[len("HTTP/1.1 "):], []byte(" "))
	out := string(line[:len("HTTP/1.1 ")]) + string(version) + " " + c.reason + "\r\n" + string(rest)
	c.reason = ""

	if _, err := io.WriteString(c.Conn, out); err != nil {
		return 0, err
	}

	return len(b), nil
}

// Reset closes a connection with a TCP reset.
func Reset(conn net.Conn) {
	if t, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = t.SetLinger(0)
	}

	_ = conn.Close()
}

// ServeHTTP handles a call.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.handlers.Add(1)
	defer s.handlers.Done()

	c, _ := req.Context().Value(connKey{}).(*conn)

	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBodyBytes))
	if err != nil {
		panic(http.ErrAbortHandler)
	}

	data, err := s.handle(req, body)
	if errors.Is(err, errReset) {
		Reset(c.raw)
		panic(http.ErrAbortHandler)
	}

	status, doc := http.StatusOK, object{"data": data}
	if list, ok := data.(page); ok {
		doc["data"], doc["total"] = list.rows, list.total
	}

	if err != nil {
		e := datacentre.Refuse("%s", err)
		_ = errors.As(err, &e)

		doc = object{"data": nil, "message": e.Message + "\n"}
		if status = e.Status; len(e.Fields) > 0 {
			doc["errors"] = e.Fields
		}

		if e.Bare {
			doc = nil
		}

		// The first line of the message is the reason phrase.
		c.reason, _, _ = strings.Cut(e.Message, "\n")
	}

	w.Header().Set("Server", serverHeader)
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(status)

	if doc != nil {
		_ = json.NewEncoder(w).Encode(doc)
	}
}
