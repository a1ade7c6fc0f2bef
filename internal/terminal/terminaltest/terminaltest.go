// Package terminaltest has terminals for tests.
package terminaltest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Open returns both ends of a new terminal with so many columns: what a user sees and types, and what programs get.
func Open(t *testing.T, columns uint16) (user, programs *os.File) {
	t.Helper()

	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = user.Close() })

	fd := int(user.Fd()) //nolint:gosec // a file descriptor
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: columns}))

	programs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = programs.Close() })

	return user, programs
}

// Run runs a program in a terminal that answers no question, and returns what it prints there.
func Run(t *testing.T, environment []string, program string, args ...string) string {
	t.Helper()

	user, programs := Open(t, 80)
	cmd := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // a test's
	cmd.Stdin, cmd.Stdout, cmd.Stderr = programs, programs, programs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}

	cmd.Env = append([]string{"TERM=xterm-256color"}, environment...)
	require.NoError(t, cmd.Start())

	printed := make(chan string)

	go func() {
		text, _ := io.ReadAll(user) // ends with an error when the last program has closed it
		printed <- string(text)
	}()

	err := cmd.Wait()

	require.NoError(t, programs.Close())

	select {
	case text := <-printed:
		require.NoError(t, err, text)

		return strings.ReplaceAll(text, "\r\n", "\n")
	case <-time.After(time.Minute):
		require.FailNow(t, "the terminal is still open")

		return ""
	}
}
