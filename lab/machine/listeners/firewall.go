package listeners

import (
	"net"
	"net/netip"
)

// firewall is a listener that accepts nobody and breaks open connections while it is blocked. Of others, it accepts new
// connections that the machine's own firewall and Proxmox' admit.
type firewall struct {
	net.Listener

	blocked func() bool
	admits  func(source netip.Addr, to netip.AddrPort) bool
}

// Accept implements net.Listener.
func (f firewall) Accept() (net.Conn, error) {
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}

		if !f.blocked() && f.admits(addressOf(conn.RemoteAddr()).Addr(), addressOf(conn.LocalAddr())) {
			return &firewallConn{conn, f.blocked}, nil
		}

		_ = conn.Close()
	}
}

// addressOf returns the address of one end of a connection.
func addressOf(a net.Addr) netip.AddrPort {
	end, _ := netip.ParseAddrPort(a.String())

	return netip.AddrPortFrom(end.Addr().Unmap(), end.Port())
}

// firewallConn is a connection through a firewall. Servers use connections as keys of maps, hence the pointer.
type firewallConn struct {
	net.Conn

	blocked func() bool
}

// Read implements net.Conn.
func (g *firewallConn) Read(into []byte) (int, error) {
	n, err := g.Conn.Read(into)
	if err == nil && g.blocked() {
		_ = g.Close()

		return 0, net.ErrClosed
	}

	return n, err
}
