package cluster_test

import (
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
)

func TestDrainAwaitsTheHealthCheck(t *testing.T) {
	t.Parallel()

	c, f, progress := clustertest.NewRunning()
	c.Kubeconfig = "of the cluster"
	w := request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}

	seen := filepath.Join(t.TempDir(), "seen")
	c.HealthCheck = `stat -c %a "$KUBECONFIG" > ` + seen + `; cat "$KUBECONFIG" >> ` + seen + `; echo "$KUBECONFIG" >> ` + seen
	require.NoError(t, c.Drain(t.Context(), w))

	content, err := os.ReadFile(seen)
	require.NoError(t, err)

	lines := strings.SplitN(string(content), "\n", 2)
	assert.Equal(t, "600", lines[0])
	path, found := strings.CutPrefix(strings.TrimSpace(lines[1]), "of the cluster")
	require.True(t, found)
	assert.NoFileExists(t, path)
	require.NoError(t, c.Uncordon(t.Context(), w))

	// A command that fails is repeated until it succeeds.
	marker := filepath.Join(t.TempDir(), "marker")
	c.HealthCheck = "test -e " + marker + " || { touch " + marker + "; exit 1; }"
	require.NoError(t, c.AwaitHealthCheck(t.Context()))

	// While it fails, no pod is evicted and no node is cordoned.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	progress.Reset()

	c.HealthCheck = "echo the queue has 12 messages >&2; exit 3"
	c.Progress = cancels{progress, cancel}
	require.Error(t, c.Drain(ctx, w))
	assert.Contains(t, progress.String(), "cluster: healthCheck: fails: exit status 3: the queue has 12 messages")
	assert.False(t, f.NodeList[3].Unschedulable)

	// Without a Ready node there is nothing to check.
	f.NodeList[3].Ready = false

	require.NoError(t, c.Drain(t.Context(), w))
}

// cancels interrupts a wait at its first output. It implements io.Writer.
type cancels struct {
	io.Writer

	cancel context.CancelFunc
}

func (c cancels) Write(b []byte) (int, error) {
	defer c.cancel()

	return c.Writer.Write(b)
}

// TestKubeconfigsOfKilledRunsAreRemoved: the user's command needs a file with a name, which a killed run leaves.
func TestKubeconfigsOfKilledRunsAreRemoved(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)

	left, runs, others := filepath.Join(temporary, "talosops-health-1"), filepath.Join(temporary, "talosops-health-2"),
		filepath.Join(temporary, "other")
	for _, folder := range []string{left, runs, others} {
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "kubeconfig"), []byte("a secret"), 0o600))
	}

	hourAgo := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(left, hourAgo, hourAgo))
	require.NoError(t, os.Chtimes(others, hourAgo, hourAgo))

	c, _, _ := clustertest.NewRunning()
	c.HealthCheck = "true"
	require.NoError(t, c.AwaitHealthCheck(t.Context()))
	assert.NoDirExists(t, left)
	assert.DirExists(t, runs)
	assert.DirExists(t, others)
}
