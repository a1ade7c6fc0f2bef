package scripttest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Program writes a script that can be started at once, and creates its folder. It prevents forks of other tests while
// the file is open for writing: a forked process keeps it open until its exec, and until then the kernel refuses to
// start the script ("text file busy", https://go.dev/issue/22315).
func Program(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))

	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()

	require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // executable
}
