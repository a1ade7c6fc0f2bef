package handover_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/handover"
)

// TestHandover: a text is there for its key only, as often as it is wanted, and not after its end.
func TestHandover(t *testing.T) {
	t.Parallel()

	text := strings.Repeat("a request with secrets\n", 5000)

	first, err := handover.Offer(t.Name(), text)
	require.NoError(t, err)

	second, err := handover.Offer(t.Name(), text) // another run with the same request
	require.NoError(t, err)

	for range 3 {
		taken, err := handover.Take(t.Name())
		require.NoError(t, err)
		assert.Equal(t, text, taken)
	}

	_, err = handover.Take("another key")
	require.ErrorContains(t, err, "does not run any more, or with another TMPDIR")

	require.NoError(t, first.Close())

	taken, err := handover.Take(t.Name())
	require.NoError(t, err)
	assert.Equal(t, text, taken, "the other run's")

	require.NoError(t, second.Close())

	_, err = handover.Take(t.Name())
	require.Error(t, err)
}

// TestFolderThatOthersRead is refused: with the name of a key, others could ask for a text, or answer with theirs.
func TestFolderThatOthersRead(t *testing.T) { //nolint:paralleltest // it sets the environment
	t.Setenv("TMPDIR", t.TempDir())

	offered, err := handover.Offer("key", "text")
	require.NoError(t, err)
	require.NoError(t, offered.Close())

	folders, err := filepath.Glob(filepath.Join(os.TempDir(), "talos-proxmox-*"))
	require.NoError(t, err)
	require.Len(t, folders, 1)

	left, err := os.ReadDir(folders[0])
	require.NoError(t, err)
	assert.Empty(t, left)

	require.NoError(t, os.Chmod(folders[0], 0o755)) //nolint:gosec // what is refused

	_, err = handover.Offer("key", "text")
	require.ErrorContains(t, err, "is not a folder that only this user can read: remove it, or set TMPDIR")
}
