package repositorytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTimers looks at the examples for systemd: a timer starts the service of its name, at a time that systemd
// understands.
func TestTimers(t *testing.T) {
	t.Parallel()

	timers, err := filepath.Glob("../../examples/systemd/*.timer")
	require.NoError(t, err)
	require.NotEmpty(t, timers)

	for _, path := range timers {
		timer, err := os.ReadFile(path)
		require.NoError(t, err)

		when := regexp.MustCompile(`(?m)^OnCalendar=(.+)$`).FindSubmatch(timer)
		require.NotNil(t, when, path)
		assert.Contains(t, string(timer), "\nWantedBy=timers.target\n", path)

		if program, err := exec.LookPath("systemd-analyze"); err == nil {
			out, err := exec.CommandContext(t.Context(), program, "calendar", string(when[1])).CombinedOutput()
			assert.NoError(t, err, string(out))
		}

		assert.FileExists(t, strings.TrimSuffix(path, ".timer")+".service")
	}
}
