package engine

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUpdateOutput writes the CLI's output byte by byte, as pipes may.
func TestUpdateOutput(t *testing.T) {
	t.Parallel()

	const preview, update = "Previewing update (lab):\n + vm create\nResources:\n    + 1 to create\n\n", "Updating (lab):\n + vm created\n"

	for name, test := range map[string]struct {
		held   bool
		output string
		want   string
	}{
		"an update after its preview": {true, preview + update, update},
		"a plan that is refused":      {true, preview + "error: preview failed\n", preview + "error: preview failed\n"},
		"an update alone":             {false, preview + update, preview + update},
		"nothing":                     {true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var shown bytes.Buffer

			w := &updateOutput{to: &shown, holding: test.held}
			_, err := io.Copy(w, iotest.OneByteReader(bytes.NewBufferString(test.output)))
			require.NoError(t, err)
			w.flush()
			assert.Equal(t, test.want, shown.String())
		})
	}
}
