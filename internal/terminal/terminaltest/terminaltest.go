// Package terminaltest has terminals for tests.
package terminaltest

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Open returns a new terminal with so many columns, as programs get it.
func Open(t *testing.T, columns uint16) *os.File {
	t.Helper()

	user, programs, err := pty.Open()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = user.Close(), programs.Close() })
	require.NoError(t, pty.Setsize(user, &pty.Winsize{Rows: 50, Cols: columns}))

	return programs
}

// RequireQuietStart checks that this test's program, which has the imports of the package under test, asks its terminal
// for nothing when it starts: such a question takes 5 s if the terminal does not answer, as this one.
func RequireQuietStart(t *testing.T) {
	t.Helper()

	program, err := os.Executable()
	require.NoError(t, err)

	cmd := exec.CommandContext(t.Context(), program, "-test.run=^$") //nolint:gosec // this program
	cmd.Env = []string{"TERM=xterm-256color"}

	user, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 80})
	require.NoError(t, err)

	defer user.Close()

	printed := make(chan string, 1)

	go func() {
		text, _ := io.ReadAll(user) // ends with an error when the last program has closed it
		printed <- string(text)
	}()

	require.NoError(t, cmd.Wait())

	select {
	case text := <-printed:
		assert.Contains(t, text, "PASS")
		assert.False(t, strings.Contains(text, "\x1b"), "it asks: %q", text)
	case <-time.After(time.Minute):
		require.FailNow(t, "the terminal is still open")
	}
}
