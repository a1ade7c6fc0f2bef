package talosapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestARefusalHasNoConfiguration has the answer of a machined 1.12.6 to a configuration that needs a reboot, in the
// mode without one: lab/machine/recording.
func TestARefusalHasNoConfiguration(t *testing.T) {
	t.Parallel()

	said := refusal{status.New(codes.InvalidArgument,
		"this config change can't be applied in immediate mode\ndiff: --- a\n+++ b\n@@ -2 +2 @@\n-    token: abcdef.0123456789abcdef")}

	assert.EqualError(t, said, "this config change can't be applied in immediate mode")
	assert.Equal(t, codes.InvalidArgument, status.Code(said))
}
