package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestAMachineThatDoesNotComeUpIsNamed sees the progress of an up name the machine that it waits for, and the same up
// end once the machine is there.
func TestAMachineThatDoesNotComeUpIsNamed(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 2)}}
	hang, err := w.lab.Data.AddFault(datacentre.Fault{Hangs: true, VMID: 3001})
	require.NoError(t, err)

	ended := make(chan error, 1)

	go func() {
		_, err := w.tryUp(t.Context(), s.yaml(t))
		ended <- err
	}()

	const waiting = "waiting for one-general-2 (VM 3001 on pve2) on "

	require.Eventually(t, func() bool { return strings.Contains(w.said(), waiting) }, within, 100*time.Millisecond)

	line := w.said()[strings.Index(w.said(), waiting):]
	assert.Contains(
		t, line,
		w.network+".1.21:50000 to answer, 15s so far; last: connection refused; its console in Proxmox shows what it does",
	)
	assert.NotContains(t, w.said(), "waiting for one-general-1")
	assert.NotContains(t, w.said(), "waiting for one-cp-1")

	require.NoError(t, w.lab.Data.ClearFaults(hang))
	require.NoError(t, <-ended, w.said())
	w.requireRunning(3)

	// What waited is not a resource: nothing of it is left to compare.
	done := w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, done)
}
