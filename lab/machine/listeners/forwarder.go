package listeners

import (
	"io"
	"net"
	"net/netip"
	"sync"
)

// Forwarder forwards connections to an API server: from the machine's other addresses, such as the virtual IP, or from
// its pods. It implements KubernetesServer.
type Forwarder struct {
	// own is the API server's own address; invalid if the target varies.
	own    netip.Addr
	target func() netip.AddrPort

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

// NewForwarder returns a forwarder to an API server.
func NewForwarder(target netip.AddrPort) *Forwarder {
	f := NewBalancer(func() netip.AddrPort { return target })
	f.own = target.Addr()

	return f
}

// NewBalancer returns a forwarder that asks for the target of each connection; invalid if there is none.
func NewBalancer(target func() netip.AddrPort) *Forwarder {
	return &Forwarder{target: target, open: map[net.Conn]bool{}}
}

// ListensOn implements KubernetesServer.
func (f *Forwarder) ListensOn(a netip.Addr) bool { return a == f.own }

// Serve implements KubernetesServer.
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

	// The first side to close ends both, as TLS has its own closing alert.
	done := make(chan struct{}, 2)

	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])

			done <- struct{}{}
		}()
	}

	<-done
}

// track records connections, which are closed with the forwarder. It returns false if that has happened.
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

// Close implements KubernetesServer.
func (f *Forwarder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.closed = true
	for c := range f.open {
		_ = c.Close()
	}

	return nil
}
