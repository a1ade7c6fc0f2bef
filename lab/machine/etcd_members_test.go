package machine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TestIsRetryable: like Talos, a machine retries to leave if a member is unhealthy or stopped, and only then.
func TestIsRetryable(t *testing.T) {
	t.Parallel()

	for err, want := range map[error]bool{
		rpctypes.ErrGRPCUnhealthy:              true,
		rpctypes.ErrGRPCStopped:                true,
		rpctypes.ErrGRPCMemberNotEnoughStarted: false,
		errors.New("no route to host"):         false,
	} {
		assert.Equal(t, want, isRetryable(fmt.Errorf("failed to remove a member: %w", err)), err)
	}
}
