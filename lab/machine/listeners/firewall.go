package listeners

import "net"

// firewall is a listener that nobody gets through to while it is shut; connections that are there break.
type firewall struct {
	net.Listener

	shut func() bool
}

// Accept implements net.Listener.
func (f firewall) Accept() (net.Conn, error) {
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}

		if !f.shut() {
			return guarded{conn, f.shut}, nil
		}

		_ = conn.Close()
	}
}

// guarded is a connection through a firewall.
type guarded struct {
	net.Conn

	shut func() bool
}

// Read implements net.Conn.
func (g guarded) Read(into []byte) (int, error) {
	n, err := g.Conn.Read(into)
	if err == nil && g.shut() {
		_ = g.Close()

		return 0, net.ErrClosed
	}

	return n, err
}
