package tlsprobe

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSource(t *testing.T) {
	t.Parallel()

	assert.Equal(t, netip.MustParseAddr("127.0.0.1"), Source(t.Context(), netip.MustParseAddr("127.3.1.10")))
}
