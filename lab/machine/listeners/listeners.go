// Package listeners serves a machine's addresses: apid, which authenticates clients and forwards requests, and the
// Kubernetes API.
package listeners

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

const (
	// TalosPort is apid's port.
	TalosPort = 50000
	// drainTimeout is how long open streams may delay the stop of a server when the machine shuts down by itself.
	drainTimeout = 300 * time.Millisecond
)

// Listeners are a machine's listeners and servers during one boot. Their own lock is taken before the machine's, which
// they may need to report why an address stays closed.
type Listeners struct {
	reportProblem func(format string, args ...any)
	blocked       func() bool
	admits        func(source netip.Addr, to netip.AddrPort) bool

	mu        sync.Mutex
	closed    bool
	talos     *grpc.Server
	apid      *apid
	machined  *grpc.Server
	kube      KubernetesServer
	listeners map[netip.AddrPort]net.Listener
	serving   sync.WaitGroup
	drain     bool
}

// New returns closed listeners. reportProblem logs why one cannot be opened, blocked reports whether a firewall in
// front of the machine blocks the Talos API, and admits whether the others admit a new connection.
func New(
	reportProblem func(format string, args ...any), blocked func() bool,
	admits func(source netip.Addr, to netip.AddrPort) bool,
) *Listeners {
	return &Listeners{
		reportProblem: reportProblem, blocked: blocked, admits: admits, listeners: map[netip.AddrPort]net.Listener{},
	}
}

// KubernetesServer serves the Kubernetes API at the machine's addresses.
type KubernetesServer interface {
	Serve(listener net.Listener) error
	Close() error
	// ListensOn reports whether the API server itself listens on an address.
	ListensOn(address netip.Addr) bool
}

// httpServer is an API server in this process.
type httpServer struct {
	*http.Server

	config *tls.Config
}

// NewHTTP returns an API server with a handler.
func NewHTTP(handler http.Handler, config *tls.Config) KubernetesServer {
	quiet := log.New(io.Discard, "", 0)

	return httpServer{&http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}, config}
}

// Serve implements KubernetesServer.
func (d httpServer) Serve(ln net.Listener) error {
	return d.Server.Serve(tls.NewListener(ln, d.config))
}

// ListensOn implements KubernetesServer.
func (httpServer) ListensOn(netip.Addr) bool { return false }

// Open listens on an address for a server. It opens only loopback addresses: the lab never uses a real network.
func (l *Listeners) Open(a netip.AddrPort, serve func(net.Listener) error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.closed || l.listeners[a] != nil {
		return
	}

	if !a.Addr().IsLoopback() {
		l.reportProblem(
			"%s is outside 127.0.0.0/8: the machine runs, but it is unreachable; give it an address of the lab's network",
			a.Addr(),
		)

		return
	}

	ln, err := net.Listen("tcp", a.String())
	if err != nil {
		advice := "check whether this computer may listen there"
		if errors.Is(err, syscall.EADDRINUSE) {
			advice = "another process or machine has the address: stop it or give this machine another address"
		}

		l.reportProblem("unable to listen on %s: %s; %s", a, err, advice)

		return
	}

	l.listeners[a] = ln
	l.serving.Add(1)

	go func() {
		defer l.serving.Done()

		_ = serve(ln) // ends with the listener, or with the server
		l.remove(a, ln)
	}()
}

// remove removes a listener whose server has ended, so that another can listen.
func (l *Listeners) remove(a netip.AddrPort, ln net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.listeners[a] == ln {
		_ = ln.Close()

		delete(l.listeners, a)
	}
}

// CloseAddress closes the listeners of an address.
func (l *Listeners) CloseAddress(address netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()

	for a, ln := range l.listeners {
		if a.Addr() == address {
			_ = ln.Close()

			delete(l.listeners, a)
		}
	}
}

// OpenTalos serves the Talos API on the addresses; the lab's computer has no IPv6 addresses for machines.
func (l *Listeners) OpenTalos(addresses []netip.Addr) {
	for _, a := range onlyIPv4(addresses) {
		l.Open(netip.AddrPortFrom(a, TalosPort), func(ln net.Listener) error {
			return l.talos.Serve(firewall{ln, l.blocked, l.admits})
		})
	}
}

func onlyIPv4(addresses []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addresses), netip.Addr.Is6)
}

// OpenKubernetes serves the Kubernetes API on the addresses if the API server runs.
func (l *Listeners) OpenKubernetes(addresses []netip.Addr, port uint16) {
	l.mu.Lock()
	server := l.kube
	l.mu.Unlock()

	if server == nil {
		return
	}

	for _, a := range onlyIPv4(addresses) {
		if !server.ListensOn(a) {
			l.Open(netip.AddrPortFrom(a, port), func(ln net.Listener) error {
				return server.Serve(firewall{ln, func() bool { return false }, l.admits})
			})
		}
	}
}

// SetKubernetes sets the API server.
func (l *Listeners) SetKubernetes(server KubernetesServer) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.kube = server
}

// DrainOnClose lets answers in flight arrive when the listeners close.
func (l *Listeners) DrainOnClose() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.drain = true
}

// Close stops all servers and listeners, and waits for their connections.
func (l *Listeners) Close() {
	l.mu.Lock()
	l.closed = true
	talos, apid, machined, kube, graceful := l.talos, l.apid, l.machined, l.kube, l.drain
	l.mu.Unlock()

	if talos != nil {
		stop(talos, graceful)
	}

	if apid != nil {
		_ = apid.local.conn.Close()
	}

	if machined != nil {
		machined.Stop()
	}

	if kube != nil {
		_ = kube.Close()
	}

	l.mu.Lock()
	for _, ln := range l.listeners {
		_ = ln.Close()
	}

	clear(l.listeners)
	l.mu.Unlock()

	l.serving.Wait()

	if apid != nil {
		apid.close()
	}
}

func stop(server *grpc.Server, graceful bool) {
	if !graceful {
		server.Stop()

		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()

	context.AfterFunc(ctx, server.Stop)
	server.GracefulStop()
}
