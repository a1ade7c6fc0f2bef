package engine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRestoreRefusesWhileOtherControlPlanesRun: two of three control planes were taken out of the stack file, as if
// they could not be reached. With their etcd data they would remain a second cluster.
func TestRestoreRefusesWhileOtherControlPlanesRun(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 3, 1)
	s.Clusters[0].ControlPlanes = 1
	w.engine(s.yaml(t)).Close() // only the stack file

	snapshot := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, os.WriteFile(snapshot, nil, 0o600))

	restore := func(more ...string) string {
		out, err := w.runCommand(append([]string{"restore", w.options.Stack, snapshot, "--confirm", "one"}, more...)...)
		require.Error(t, err)

		return out
	}

	const passed = "the snapshot is empty" // talosops was started

	out := restore()
	assert.Contains(t, out, "one-cp-2: VM 2001 on "+w.hostOf(2001)+" (running)")
	assert.Contains(t, out, "one-cp-3: VM 2002 on "+w.hostOf(2002)+" (running)")
	assert.NotContains(t, out, "one-general-1")
	assert.NotContains(t, out, passed)

	w.stopVM(2001)

	out = restore()
	assert.NotContains(t, out, "one-cp-2")
	assert.Contains(t, out, "one-cp-3: VM 2002 on ")

	assert.Contains(t, restore("--gone", "one-cp-3"), passed)
	w.stopVM(2002)
	assert.Contains(t, restore(), passed)
}
