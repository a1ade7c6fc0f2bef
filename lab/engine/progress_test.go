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

// TestProgressNamesAMachineThatDoesNotBoot checks that an up names the machine that it waits for, and that it ends once
// the machine answers.
func TestProgressNamesAMachineThatDoesNotBoot(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 2)
	boot := w.addFault(datacentre.Fault{Hangs: true, VMID: 3001})

	ended := make(chan error, 1)

	go func() {
		_, err := w.tryUp(t.Context(), s.yaml(t))
		ended <- err
	}()

	const waiting = "waiting for one-general-2 (VM 3001 on pve2) on "

	require.Eventually(t, func() bool { return strings.Contains(w.output(), waiting) }, within, 100*time.Millisecond)

	line := w.output()[strings.Index(w.output(), waiting):]
	assert.Contains(
		t, line,
		w.network+".1.21:50000 to answer, 15s so far; last: connection refused; its console in Proxmox shows what it does",
	)
	assert.NotContains(t, w.output(), "waiting for one-general-1")
	assert.NotContains(t, w.output(), "waiting for one-cp-1")

	boot()
	require.NoError(t, <-ended, w.output())
	w.requireRunning(3)

	// The wait is not a resource: the next up has nothing to compare.
	done := w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, done)
}
