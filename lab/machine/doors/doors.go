// Package doors is what listens at a machine's addresses: apid, which asks who calls and passes requests on, and the
// Kubernetes API.
package doors

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
	// drain is how long open streams may delay the end of a server whose machine goes down on its own.
	drain = 300 * time.Millisecond
)

// Doors are a machine's listeners and the servers behind them, for one boot. They have their own lock, inside of which
// they may take the machine's to say why a door stays shut.
type Doors struct {
	fail func(format string, args ...any)
	shut func() bool

	mu        sync.Mutex
	closed    bool
	talos     *grpc.Server
	apid      *apid
	machined  *grpc.Server
	kube      Kubernetes
	listeners map[netip.AddrPort]net.Listener
	serving   sync.WaitGroup
	drain     bool
}

// New returns closed doors; fail says on the console why one cannot be opened, and shut whether a firewall lets nobody
// through to the Talos API.
func New(fail func(format string, args ...any), shut func() bool) *Doors {
	return &Doors{fail: fail, shut: shut, listeners: map[netip.AddrPort]net.Listener{}}
}

// Kubernetes is what answers for the Kubernetes API at the machine's addresses.
type Kubernetes interface {
	Serve(listener net.Listener) error
	Close() error
	// Has says whether the API server itself listens on an address.
	Has(address netip.Addr) bool
}

// httpDoor is an API server in this process.
type httpDoor struct {
	*http.Server

	config *tls.Config
}

// NewHTTP lets a handler answer for the Kubernetes API.
func NewHTTP(handler http.Handler, config *tls.Config) Kubernetes {
	quiet := log.New(io.Discard, "", 0)

	return httpDoor{&http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}, config}
}

// Serve implements Kubernetes.
func (d httpDoor) Serve(ln net.Listener) error { return d.Server.Serve(tls.NewListener(ln, d.config)) }

// Has implements Kubernetes.
func (httpDoor) Has(netip.Addr) bool { return false }

// Open listens on an address for a server. Only loopback addresses are opened: the lab never touches a real network.
func (d *Doors) Open(a netip.AddrPort, serve func(net.Listener) error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.closed || d.listeners[a] != nil {
		return
	}

	if !a.Addr().IsLoopback() {
		d.fail(
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

		d.fail("unable to listen on %s: %s; %s", a, err, advice)

		return
	}

	d.listeners[a] = ln
	d.serving.Add(1)

	go func() {
		defer d.serving.Done()

		_ = serve(ln) // ends with the listener, or with the server
		d.forget(a, ln)
	}()
}

// forget lets another server listen where one has ended.
func (d *Doors) forget(a netip.AddrPort, ln net.Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.listeners[a] == ln {
		_ = ln.Close()

		delete(d.listeners, a)
	}
}

// Shut closes the listeners of an address.
func (d *Doors) Shut(address netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for a, ln := range d.listeners {
		if a.Addr() == address {
			_ = ln.Close()

			delete(d.listeners, a)
		}
	}
}

// OpenTalos serves the Talos API on the addresses.
func (d *Doors) OpenTalos(addresses []netip.Addr) {
	for _, a := range addresses {
		d.Open(netip.AddrPortFrom(a, TalosPort), func(ln net.Listener) error {
			return d.talos.Serve(firewall{ln, d.shut})
		})
	}
}

// OpenKubernetes serves the Kubernetes API on the addresses, if the API server runs.
func (d *Doors) OpenKubernetes(addresses []netip.Addr, port uint16) {
	d.mu.Lock()
	server := d.kube
	d.mu.Unlock()

	if server == nil {
		return
	}

	for _, a := range addresses {
		if !server.Has(a) {
			d.Open(netip.AddrPortFrom(a, port), server.Serve)
		}
	}
}

// SetKubernetes installs the API server.
func (d *Doors) SetKubernetes(door Kubernetes) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.kube = door
}

// Gracefully lets answers that are on their way arrive when the doors close.
func (d *Doors) Gracefully() {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.drain = true
}

// Close ends every server and listener and waits for their connections.
func (d *Doors) Close() {
	d.mu.Lock()
	d.closed = true
	talos, apid, machined, kube, graceful := d.talos, d.apid, d.machined, d.kube, d.drain
	d.mu.Unlock()

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

	d.mu.Lock()
	for _, ln := range d.listeners {
		_ = ln.Close()
	}

	clear(d.listeners)
	d.mu.Unlock()

	d.serving.Wait()

	if apid != nil {
		apid.close()
	}
}

func stop(server *grpc.Server, graceful bool) {
	if !graceful {
		server.Stop()

		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()

	context.AfterFunc(ctx, server.Stop)
	server.GracefulStop()
}
