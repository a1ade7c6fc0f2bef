package talosapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestErrorsOmitConfigurationDiff has the response of a machined 1.12.6 to a configuration that needs a reboot, in the
// mode without one: lab/machine/recording.
func TestErrorsOmitConfigurationDiff(t *testing.T) {
	t.Parallel()

	err := rpcError{status.New(codes.InvalidArgument,
		"this config change can't be applied in immediate mode\ndiff: --- a\n+++ b\n@@ -2 +2 @@\n-    token: abcdef.0123456789abcdef")}

	assert.EqualError(t, err, "this config change can't be applied in immediate mode")
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
}
