package listeners

import (
	"io"
	"net"
	"net/netip"
	"sync"
)

// Forwarder leads connections to an API server: those to the machine's other addresses, the virtual one among them, or
// those of its pods. It implements Kubernetes.
type Forwarder struct {
	// own is the API server's own address; invalid where it changes.
	own    netip.Addr
	target func() netip.AddrPort

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

// NewForwarder makes one that leads to an API server.
func NewForwarder(target netip.AddrPort) *Forwarder {
	f := NewBalancer(func() netip.AddrPort { return target })
	f.own = target.Addr()

	return f
}

// NewBalancer makes one that leads each connection to the API server of its moment; none where that is invalid.
func NewBalancer(target func() netip.AddrPort) *Forwarder {
	return &Forwarder{target: target, open: map[net.Conn]bool{}}
}

// ListensOn implements Kubernetes.
func (f *Forwarder) ListensOn(a netip.Addr) bool { return a == f.own }

// Serve implements Kubernetes.
func (f *Forwarder) Serve(ln net.Listener) error {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}

		go f.forward(conn)
	}
}

func (f *Forwarder) forward(client net.Conn) {
	target := f.target()

	server, err := net.Dial("tcp", target.String())
	if err != nil {
		_ = client.Close()

		return
	}

	if !f.track(client, server) {
		return
	}

	defer f.untrack(client, server)

	// What one side has ended, the other one hears; the first that ends ends both, as TLS says goodbye by itself.
	done := make(chan struct{}, 2)

	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])

			done <- struct{}{}
		}()
	}

	<-done
}

// track remembers connections, which a machine that goes down takes with it; false when it has.
func (f *Forwarder) track(connections ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, c := range connections {
		if f.closed {
			_ = c.Close()
		} else {
			f.open[c] = true
		}
	}

	return !f.closed
}

func (f *Forwarder) untrack(connections ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, c := range connections {
		_ = c.Close()
		delete(f.open, c)
	}
}

// Close implements Kubernetes.
func (f *Forwarder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.closed = true
	for c := range f.open {
		_ = c.Close()
	}

	return nil
}
