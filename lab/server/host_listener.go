package server

import (
	"errors"
	"net"
	"sync"
	"time"

	"talos-proxmox/lab/proxmox"
)

// HostListener is a listener of a host, which is shut while the host is away: clients are refused then, as by a
// machine that nothing listens on, and connections break.
type HostListener struct {
	mu     sync.Mutex
	ln     net.Listener
	conns  map[*net.TCPConn]bool
	addr   net.Addr
	opened chan struct{} // closed when there is a listener again
	closed chan struct{}
	once   sync.Once
}

// reopenPoll is how often a listener is tried whose port someone else has taken meanwhile.
const reopenPoll = 50 * time.Millisecond

// NewHostListener returns the listener of a host that is on.
func NewHostListener(ln net.Listener) *HostListener {
	return &HostListener{
		ln: ln, conns: map[*net.TCPConn]bool{}, addr: ln.Addr(), opened: make(chan struct{}), closed: make(chan struct{}),
	}
}

// Accept waits for the next client, over any time that the listener is shut.
func (l *HostListener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		ln, opened := l.ln, l.opened
		l.mu.Unlock()

		if ln == nil {
			select {
			case <-opened:
				continue
			case <-l.closed:
				return nil, net.ErrClosed
			}
		}

		conn, err := ln.Accept()

		l.mu.Lock()
		same := l.ln == ln

		if tcp, ok := conn.(*net.TCPConn); ok {
			l.conns[tcp] = true
			l.mu.Unlock()

			return guest{tcp, l}, nil
		}
		l.mu.Unlock()

		if same { // not because it was shut
			return nil, err
		}
	}
}

// guest is a connection that is forgotten when it is closed.
type guest struct {
	*net.TCPConn

	listener *HostListener
}

// Close ends the connection.
func (g guest) Close() error {
	g.listener.mu.Lock()
	delete(g.listener.conns, g.TCPConn)
	g.listener.mu.Unlock()

	return g.TCPConn.Close()
}

// Addr is the same all the time.
func (l *HostListener) Addr() net.Addr { return l.addr }

// Close shuts the listener forever.
func (l *HostListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	l.shut()

	return nil
}

func (l *HostListener) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.ln != nil {
		_ = l.ln.Close()
		l.ln, l.opened = nil, make(chan struct{})
	}
}

// open listens again, as soon as the port can be had.
func (l *HostListener) open() {
	for {
		ln, err := net.Listen(l.addr.Network(), l.addr.String())

		l.mu.Lock()

		if err == nil && l.ln == nil && !l.isClosed() {
			l.ln = ln
			close(l.opened)
			l.mu.Unlock()

			return
		}

		open := l.ln != nil
		l.mu.Unlock()

		if err == nil {
			_ = ln.Close()
		}

		if open {
			return
		}

		select {
		case <-l.closed:
			return
		case <-time.After(reopenPoll):
		}
	}
}

func (l *HostListener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Power follows the host.
func (l *HostListener) Power(on bool) {
	if on {
		l.open()

		return
	}

	l.shut()

	l.mu.Lock()
	defer l.mu.Unlock()

	conns := l.conns
	l.conns = map[*net.TCPConn]bool{}

	time.AfterFunc(lastWords, func() {
		for conn := range conns {
			proxmox.Reset(conn)
		}
	})
}

// lastWords is how long connections last at a shut listener, so that who asked for a reboot gets an answer.
const lastWords = 100 * time.Millisecond

// hostServer is what answers at a host's listener.
type hostServer interface {
	Serve(ln net.Listener) error
	Close() error
}

// serveHost serves at a listener that is shut while the host is off.
func (s *Server) serveHost(host string, ln net.Listener, server hostServer) {
	l := NewHostListener(ln)

	s.serve(func() error { return server.Serve(l) }, func() error { return errors.Join(l.Close(), server.Close()) })
	s.Data.OnHostPower(host, l.Power)
}
