package server

import (
	"errors"
	"net"
	"sync"
	"time"
)

// door is a listener of a host that is shut while the host is off: clients are refused then, as by a machine that
// nothing listens on.
type door struct {
	mu     sync.Mutex
	ln     net.Listener
	addr   net.Addr
	opened chan struct{} // closed when there is a listener again
	closed chan struct{}
	once   sync.Once
}

// reopenPoll is how often a door is tried whose port someone else has taken meanwhile.
const reopenPoll = 50 * time.Millisecond

func newDoor(ln net.Listener) *door {
	return &door{ln: ln, addr: ln.Addr(), opened: make(chan struct{}), closed: make(chan struct{})}
}

// Accept waits for the next client, over any time that the door is shut.
func (d *door) Accept() (net.Conn, error) {
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
		if err == nil {
			return conn, nil
		}

		d.mu.Lock()
		same := d.ln == ln
		d.mu.Unlock()

		if same { // not because it was shut
			return nil, err
		}
	}
}

// Addr is the same all the time.
func (d *door) Addr() net.Addr { return d.addr }

// Close shuts the door forever.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	d.shut()

	return nil
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.ln != nil {
		_ = d.ln.Close()
		d.ln, d.opened = nil, make(chan struct{})
	}
}

// open listens again, as soon as the port can be had.
func (d *door) open() {
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

func (d *door) isClosed() bool {
	select {
	case <-d.closed:
		return true
	default:
		return false
	}
}

// power follows the host.
func (d *door) power(on bool) {
	if on {
		d.open()
	} else {
		d.shut()
	}
}

// front is what answers at a door.
type front interface {
	Serve(ln net.Listener) error
	Close() error
}

// serveHost serves at a door that is shut while the host is off.
func (s *Server) serveHost(host string, ln net.Listener, server front) {
	d := newDoor(ln)

	s.serve(func() error { return server.Serve(d) }, func() error { return errors.Join(d.Close(), server.Close()) })
	s.Data.OnHostPower(host, d.power)
}
