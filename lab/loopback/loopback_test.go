package loopback_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/loopback"
)

func TestDialReachesThisComputerOnly(t *testing.T) {
	t.Parallel()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })

	conn, err := loopback.Dial(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	// Documentation networks (RFC 5737, RFC 3849): refused before anything is sent.
	for _, address := range []string{"192.0.2.1:8006", "[2001:db8::1]:22"} {
		_, err := loopback.Dial(t.Context(), "tcp", address)
		require.ErrorContains(t, err, address+" is not on loopback")

		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
		require.NoError(t, err)

		_, err = (&http.Client{Transport: loopback.Transport()}).Do(request) //nolint:bodyclose // there is none
		assert.ErrorContains(t, err, "is not on loopback")
	}
}
