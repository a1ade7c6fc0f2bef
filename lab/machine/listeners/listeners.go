// Package listeners is what listens at a machine's addresses: apid, which asks who calls and passes requests on, and
// the Kubernetes API.
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
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

const (
	// TalosPort is apid's.
	TalosPort = 50000
	// drainTimeout is how long open streams may delay the end of a server whose machine goes down on its own.
	drainTimeout = 300 * time.Millisecond
)

// Listeners are a machine's listeners and the servers behind them, for one boot. They have their own lock, inside of
// which they may take the machine's to say why an address stays closed.
type Listeners struct {
	reportProblem func(format string, args ...any)
	blocked       func() bool

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

// New returns closed listeners; fail says on the console why one cannot be opened, and shut whether a firewall lets
// nobody through to the Talos API.
func New(reportProblem func(format string, args ...any), blocked func() bool) *Listeners {
	return &Listeners{reportProblem: reportProblem, blocked: blocked, listeners: map[netip.AddrPort]net.Listener{}}
}

// KubernetesServer is what answers for the Kubernetes API at the machine's addresses.
type KubernetesServer interface {
	Serve(listener net.Listener) error
	Close() error
	// ListensOn says whether the API server itself listens on an address.
	ListensOn(address netip.Addr) bool
}

// httpServer is an API server in this process.
type httpServer struct {
	*http.Server

	config *tls.Config
}

// NewHTTP lets a handler answer for the Kubernetes API.
func NewHTTP(handler http.Handler, config *tls.Config) KubernetesServer {
	quiet := log.New(io.Discard, "", 0)

	return httpServer{&http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}, config}
}

// Serve implements Kubernetes.
func (d httpServer) Serve(ln net.Listener) error {
	return d.Server.Serve(tls.NewListener(ln, d.config))
}

// ListensOn implements Kubernetes.
func (httpServer) ListensOn(netip.Addr) bool { return false }

// Open listens on an address for a server. Only loopback addresses are opened: the lab never touches a real network.
func (l *Listeners) Open(a netip.AddrPort, serve func(net.Listener) error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.closed || l.listeners[a] != nil {
		return
	}

	if !a.Addr().IsLoopback() {
		l.reportProblem(
			"%s is outside of 127.0.0.0/8: the machine runs, but no one can reach it; give it an address of the lab's network",
			a.Addr(),
		)

		return
	}

	ln, err := net.Listen("tcp", a.String())
	if err != nil {
		advice := "see whether this machine may listen there"
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

// remove lets another server listen where one has ended.
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

// OpenTalos serves the Talos API on the addresses.
func (l *Listeners) OpenTalos(addresses []netip.Addr) {
	for _, a := range addresses {
		l.Open(netip.AddrPortFrom(a, TalosPort), func(ln net.Listener) error {
			return l.talos.Serve(firewall{ln, l.blocked})
		})
	}
}

// OpenKubernetes serves the Kubernetes API on the addresses, if the API server runs.
func (l *Listeners) OpenKubernetes(addresses []netip.Addr, port uint16) {
	l.mu.Lock()
	server := l.kube
	l.mu.Unlock()

	if server == nil {
		return
	}

	for _, a := range addresses {
		if !server.ListensOn(a) {
			l.Open(netip.AddrPortFrom(a, port), server.Serve)
		}
	}
}

// SetKubernetes installs the API server.
func (l *Listeners) SetKubernetes(server KubernetesServer) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.kube = server
}

// DrainOnClose lets answers that are on their way arrive when the listeners close.
func (l *Listeners) DrainOnClose() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.drain = true
}

// Close ends every server and listener and waits for their connections.
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
