package scripts

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHostScriptIsShellcheckClean(t *testing.T) {
	t.Parallel()

	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not installed; make lint needs it, too")
	}

	parts, err := filepath.Glob("host/*.sh")
	require.NoError(t, err)
	output, err := exec.CommandContext(t.Context(), "shellcheck", parts...).CombinedOutput()
	require.NoError(t, err, string(output))
}

// TestJSONEscape compares the shell's escape with JSON's own for texts of several lines, which facts do not contain.
func TestJSONEscape(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", "\n", "a\nb\r\n\tc", "\n\n\"\n", "\\n"} {
		cmd := exec.CommandContext(t.Context(), "bash", "-s")
		lib, err := parts.ReadFile("host/lib.sh")
		require.NoError(t, err)

		script := Assignments(
			[]Parameter{{"action", "facts"}, {"host", "pve1"}, {"owner", "x"}, {"root", ""}, {"text", text}},
		) + string(lib) + "\njson \"$text\"\nprintf '%s' \"$REPLY\"\n"
		cmd.Stdin = bytes.NewReader([]byte(script))
		output, err := cmd.Output()
		require.NoError(t, err)

		var decoded string
		require.NoError(t, json.Unmarshal(output, &decoded), string(output))
		assert.Equal(t, text, decoded)
	}
}
