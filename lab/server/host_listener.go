package server

import (
	"errors"
	"net"
	"sync"
	"time"

	"talos-proxmox/lab/proxmox"
)

// HostListener is a host's listener, which is shut while the host is off: connections are refused, as by a machine
// without a server, and existing ones break.
type HostListener struct {
	mu     sync.Mutex
	ln     net.Listener
	conns  map[*net.TCPConn]bool
	addr   net.Addr
	opened chan struct{} // closed when the listener is open again
	closed chan struct{}
	once   sync.Once
}

// reopenPoll is how often a listener whose port another program has taken meanwhile is tried again.
const reopenPoll = 50 * time.Millisecond

// NewHostListener returns the listener of a host that is on.
func NewHostListener(ln net.Listener) *HostListener {
	return &HostListener{
		ln: ln, conns: map[*net.TCPConn]bool{}, addr: ln.Addr(), opened: make(chan struct{}), closed: make(chan struct{}),
	}
}

// Accept waits for the next client, also while the listener is shut.
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

			return trackedConn{tcp, l}, nil
		}
		l.mu.Unlock()

		if same { // it was not shut
			return nil, err
		}
	}
}

// trackedConn is a connection that the listener forgets when it is closed.
type trackedConn struct {
	*net.TCPConn

	listener *HostListener
}

// Close closes the connection.
func (g trackedConn) Close() error {
	g.listener.mu.Lock()
	delete(g.listener.conns, g.TCPConn)
	g.listener.mu.Unlock()

	return g.TCPConn.Close()
}

// Addr returns the address, which never changes.
func (l *HostListener) Addr() net.Addr { return l.addr }

// Close shuts the listener for good.
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

// open listens again, as soon as the port is free.
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

// Power shuts the listener when the host goes off, and reopens it when it comes on.
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

	time.AfterFunc(connectionGrace, func() {
		for conn := range conns {
			proxmox.Reset(conn)
		}
	})
}

// connectionGrace is how long connections to a shut listener last, so that a request to reboot gets its answer.
const connectionGrace = 100 * time.Millisecond

// hostServer is a server on a host's listener.
type hostServer interface {
	Serve(ln net.Listener) error
	Close() error
}

// serveHost serves on a listener that is shut while the host is off.
func (s *Server) serveHost(host string, ln net.Listener, server hostServer) {
	l := NewHostListener(ln)

	s.serve(func() error { return server.Serve(l) }, func() error { return errors.Join(l.Close(), server.Close()) })
	s.Data.OnHostPower(host, l.Power)
}
