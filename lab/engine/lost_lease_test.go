package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestARunThatLosesItsLeaseRemovesNothing: the process that holds the cluster for a run is killed while the first of
// four workers leaves. Another run could begin, so the others stay; the next run takes the cluster over at once.
func TestARunThatLosesItsLeaseRemovesNothing(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	defer w.newLanguageHost().use()()

	s := w.stack(1, 5)
	w.up(s.yaml(t))

	s.Clusters[0].Workers = 1

	w.when(t.Context(), func(w *world) bool { return strings.Contains(w.consoles(), "reset via API received") }, func() {
		w.killProgram("talosops", "hold")
	})

	_, err := w.tryUp(t.Context(), s.yaml(t))
	require.Error(t, err, w.output())
	assert.Contains(t, w.output(), "its run no longer holds the cluster, and another one may begin (")
	assert.GreaterOrEqual(t, len(w.machines()), 5, "at most the worker that was leaving has gone")

	output := w.outputOf(func() { w.up(s.yaml(t)) })
	assert.NotContains(t, output, "waits: kube-system/talos-proxmox-run", "the holder is known to be dead")
	w.requireRunning(2)
}
