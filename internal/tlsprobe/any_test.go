package tlsprobe

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAny(t *testing.T) {
	t.Parallel()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	all := []netip.Addr{netip.MustParseAddr("127.9.9.9"), netip.MustParseAddr("127.0.0.1")}

	assert.True(t, waitForAny(t.Context(), all, port, time.Minute))
	assert.False(t, waitForAny(t.Context(), all[:1], port, 2*retryInterval))
	require.NoError(t, listener.Close())
	assert.False(t, AnyReachable(t.Context(), all[:1], 2*retryInterval))
}
