package listeners

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listen serves on a free port of this computer until the test ends.
func listen(t *testing.T, serve func(net.Listener)) netip.AddrPort {
	t.Helper()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })

	go serve(ln)

	return addressOf(ln.Addr())
}

// TestForwarderBehindAFirewall: connections to an API server pass the machine's firewall and the forwarder, which keeps
// a list of them.
func TestForwarderBehindAFirewall(t *testing.T) {
	t.Parallel()

	server := listen(t, func(ln net.Listener) {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}

			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}
	})

	admitted := netip.MustParseAddr("127.0.0.1")
	forwarder := NewForwarder(server)
	address := listen(t, func(ln net.Listener) {
		_ = forwarder.Serve(firewall{
			Listener: ln, blocked: func() bool { return false },
			admits: func(source netip.Addr, _ netip.AddrPort) bool { return source == admitted },
		})
	})

	read := func(from string) string {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}

		conn, err := dialer.Dial("tcp", address.String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })

		text, _ := io.ReadAll(conn) // a refused connection may be reset

		return string(text)
	}

	assert.Equal(t, "hello", read("127.0.0.1"))
	assert.Empty(t, read("127.0.0.2"))

	require.NoError(t, forwarder.Close())
}
