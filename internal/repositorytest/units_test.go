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

// TestTimers checks the examples for systemd: a timer starts the service of its name, at a valid time.
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

		service := strings.TrimSuffix(path, ".timer") + ".service"
		assert.FileExists(t, service)
		requireSandbox(t, service)
	}
}

// requireSandbox limits the exposure of a service by `systemd-analyze security`; the threshold is ten times its score.
// A unit without a user counts as root.
func requireSandbox(t *testing.T, unit string) {
	t.Helper()

	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return
	}

	folder := t.TempDir()
	content, err := os.ReadFile(unit) //nolint:gosec // an example of the repository
	require.NoError(t, err)

	path := filepath.Join(folder, filepath.Base(unit))
	require.NoError(t, os.WriteFile(path, content, 0o600))

	out, err := exec.CommandContext(
		t.Context(), program, "security", "--offline=true", "--threshold=60", "--no-pager", path,
	).CombinedOutput()
	assert.NoError(t, err, string(out))
}
