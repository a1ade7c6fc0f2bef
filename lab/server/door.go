package server

import (
	"errors"
	"net"
	"sync"
	"time"

	"talos-proxmox/lab/proxmox"
)

// Door is a listener of a host that is shut while the host is away: clients are refused then, as by a machine that
// nothing listens on, and connections break.
type Door struct {
	mu     sync.Mutex
	ln     net.Listener
	conns  map[*net.TCPConn]bool
	addr   net.Addr
	opened chan struct{} // closed when there is a listener again
	closed chan struct{}
	once   sync.Once
}

// reopenPoll is how often a door is tried whose port someone else has taken meanwhile.
const reopenPoll = 50 * time.Millisecond

// NewDoor returns the door of a listener, open.
func NewDoor(ln net.Listener) *Door {
	return &Door{
		ln: ln, conns: map[*net.TCPConn]bool{}, addr: ln.Addr(), opened: make(chan struct{}), closed: make(chan struct{}),
	}
}

// Accept waits for the next client, over any time that the door is shut.
func (d *Door) Accept() (net.Conn, error) {
	for {
		d.mu.Lock()
		ln, opened := d.ln, d.opened
		d.mu.Unlock()

		if ln == nil {
			select {
			case <-opened:
				continue
			case <-d.closed:
				return nil, net.ErrClosed
			}
		}

		conn, err := ln.Accept()

		d.mu.Lock()
		same := d.ln == ln

		if tcp, ok := conn.(*net.TCPConn); ok {
			d.conns[tcp] = true
			d.mu.Unlock()

			return guest{tcp, d}, nil
		}
		d.mu.Unlock()

		if same { // not because it was shut
			return nil, err
		}
	}
}

// guest is a connection that is forgotten when it is closed.
type guest struct {
	*net.TCPConn

	door *Door
}

// Close ends the connection.
func (g guest) Close() error {
	g.door.mu.Lock()
	delete(g.door.conns, g.TCPConn)
	g.door.mu.Unlock()

	return g.TCPConn.Close()
}

// Addr is the same all the time.
func (d *Door) Addr() net.Addr { return d.addr }

// Close shuts the door forever.
func (d *Door) Close() error {
	d.once.Do(func() { close(d.closed) })
	d.shut()

	return nil
}

func (d *Door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.ln != nil {
		_ = d.ln.Close()
		d.ln, d.opened = nil, make(chan struct{})
	}
}

// open listens again, as soon as the port can be had.
func (d *Door) open() {
	for {
		ln, err := net.Listen(d.addr.Network(), d.addr.String())

		d.mu.Lock()

		if err == nil && d.ln == nil && !d.isClosed() {
			d.ln = ln
			close(d.opened)
			d.mu.Unlock()

			return
		}

		open := d.ln != nil
		d.mu.Unlock()

		if err == nil {
			_ = ln.Close()
		}

		if open {
			return
		}

		select {
		case <-d.closed:
			return
		case <-time.After(reopenPoll):
		}
	}
}

func (d *Door) isClosed() bool {
	select {
	case <-d.closed:
		return true
	default:
		return false
	}
}

// Power follows the host.
func (d *Door) Power(on bool) {
	if on {
		d.open()

		return
	}

	d.shut()

	d.mu.Lock()
	defer d.mu.Unlock()

	conns := d.conns
	d.conns = map[*net.TCPConn]bool{}

	time.AfterFunc(lastWords, func() {
		for conn := range conns {
			proxmox.Reset(conn)
		}
	})
}

// lastWords is how long connections last at a shut door, so that who asked for a reboot gets an answer.
const lastWords = 100 * time.Millisecond

// front is what answers at a door.
type front interface {
	Serve(ln net.Listener) error
	Close() error
}

// serveHost serves at a door that is shut while the host is off.
func (s *Server) serveHost(host string, ln net.Listener, server front) {
	d := NewDoor(ln)

	s.serve(func() error { return server.Serve(d) }, func() error { return errors.Join(d.Close(), server.Close()) })
	s.Data.OnHostPower(host, d.Power)
}
