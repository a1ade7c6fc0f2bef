package tlsprobe

import (
	"context"
	"net"
	"net/netip"
)

// Source returns the address with which this computer connects to a machine, by its routes; invalid = it has none. It
// sends nothing, and does not know of routers that translate addresses (NAT).
func Source(ctx context.Context, machine netip.Addr) netip.Addr {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", netip.AddrPortFrom(machine, talosPort).String())
	if err != nil {
		return netip.Addr{}
	}

	defer func() { _ = conn.Close() }()

	return sourceOf(conn)
}

// sourceOf returns this computer's address in a connection.
func sourceOf(conn net.Conn) netip.Addr {
	source, _ := netip.ParseAddrPort(conn.LocalAddr().String())

	return source.Addr().Unmap()
}
