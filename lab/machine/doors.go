package machine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

const (
	talosPort = 50000
	// drain is how long open streams may delay the end of a server whose machine goes down on its own.
	drain = 300 * time.Millisecond
)

// doors are the machine's listeners and the servers behind them, for one boot.
type doors struct {
	m *machine

	mu        sync.Mutex
	closed    bool
	talos     *grpc.Server
	machined  *grpc.Server
	loopback  *grpc.ClientConn
	kube      kubeDoor
	listeners map[netip.AddrPort]net.Listener
	serving   sync.WaitGroup
	drain     bool
}

// kubeDoor is what answers for the Kubernetes API at the machine's addresses.
type kubeDoor interface {
	Serve(listener net.Listener) error
	Close() error
	// has says whether the API server itself listens on an address.
	has(address netip.Addr) bool
}

// modelDoor is the model's API server.
type modelDoor struct {
	*http.Server
	config *tls.Config
}

func newModelDoor(handler http.Handler, config *tls.Config) modelDoor {
	return modelDoor{&http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: discardLog}, config}
}

// Serve implements kubeDoor.
func (d modelDoor) Serve(ln net.Listener) error { return d.Server.Serve(tls.NewListener(ln, d.config)) }

func (modelDoor) has(netip.Addr) bool { return false }

func newDoors(m *machine) *doors { return &doors{m: m, listeners: map[netip.AddrPort]net.Listener{}} }

// open listens on an address for a server. Only loopback addresses are opened: the lab never touches a real network.
func (d *doors) open(a netip.AddrPort, serve func(net.Listener) error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.closed || d.listeners[a] != nil {
		return
	}

	if !a.Addr().IsLoopback() {
		d.m.fail("%s is outside of 127.0.0.0/8: the machine runs, but nobody can reach it; give it an address of the lab's network", a.Addr())

		return
	}

	ln, err := net.Listen("tcp", a.String())
	if err != nil {
		advice := "see whether this machine may listen there"
		if errors.Is(err, syscall.EADDRINUSE) {
			advice = "another process or machine has the address: stop it or give this machine another address"
		}

		d.m.fail("unable to listen on %s: %s; %s", a, err, advice)

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
func (d *doors) forget(a netip.AddrPort, ln net.Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.listeners[a] == ln {
		_ = ln.Close()
		delete(d.listeners, a)
	}
}

// shut closes the listeners of an address.
func (d *doors) shut(address netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for a, ln := range d.listeners {
		if a.Addr() == address {
			_ = ln.Close()
			delete(d.listeners, a)
		}
	}
}

// openTalos serves the Talos API on the addresses.
func (d *doors) openTalos(addresses []netip.Addr) {
	for _, a := range addresses {
		d.open(netip.AddrPortFrom(a, talosPort), d.talos.Serve)
	}
}

// openKubernetes serves the Kubernetes API on the addresses, if the API server runs.
func (d *doors) openKubernetes(addresses []netip.Addr, port uint16) {
	d.mu.Lock()
	server := d.kube
	d.mu.Unlock()

	if server == nil {
		return
	}

	for _, a := range addresses {
		if !server.has(a) {
			d.open(netip.AddrPortFrom(a, port), server.Serve)
		}
	}
}

// setKubernetes installs the API server.
func (d *doors) setKubernetes(door kubeDoor) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.kube = door
}

// gracefully lets answers that are on their way arrive when the doors close.
func (d *doors) gracefully() {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.drain = true
}

// close ends every server and listener and waits for their connections.
func (d *doors) close() {
	if d == nil {
		return
	}

	d.mu.Lock()
	d.closed = true
	talos, machined, loopback, kube, graceful := d.talos, d.machined, d.loopback, d.kube, d.drain
	d.mu.Unlock()

	if talos != nil {
		stop(talos, graceful)
	}

	if loopback != nil {
		_ = loopback.Close()
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

// fail notes why the machine cannot be reached.
func (m *machine) fail(format string, args ...any) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.problem = fmt.Sprintf(format, args...)
	m.logf("[talos] %s", m.problem)
}
