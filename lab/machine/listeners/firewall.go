package listeners

import "net"

// firewall is a listener that accepts nobody and breaks open connections while it is blocked.
type firewall struct {
	net.Listener

	blocked func() bool
}

// Accept implements net.Listener.
func (f firewall) Accept() (net.Conn, error) {
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}

		if !f.blocked() {
			return firewallConn{conn, f.blocked}, nil
		}

		_ = conn.Close()
	}
}

// firewallConn is a connection through a firewall.
type firewallConn struct {
	net.Conn

	blocked func() bool
}

// Read implements net.Conn.
func (g firewallConn) Read(into []byte) (int, error) {
	n, err := g.Conn.Read(into)
	if err == nil && g.blocked() {
		_ = g.Close()

		return 0, net.ErrClosed
	}

	return n, err
}
