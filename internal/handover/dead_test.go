package handover

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSocketsOfKilledRunsAreRemoved: those that nobody answers, and that no run is just making.
func TestSocketsOfKilledRunsAreRemoved(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	listen := func(name string, age time.Duration) *net.UnixListener {
		path := filepath.Join(folder, name)

		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		listener.SetUnlinkOnClose(false) // as a kill does

		made := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(path, made, made))

		return listener
	}

	require.NoError(t, listen("dead", 2*deadAfter).Close())
	require.NoError(t, listen("new", 0).Close())

	running := listen("running", 2*deadAfter)
	defer running.Close()

	removeDeadIn(folder)

	left, err := filepath.Glob(folder + "/*")
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(folder, "new"), filepath.Join(folder, "running")}, left)
}
