package machine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/machine/recording"
)

// TestTheLabAnswersAsRecorded makes the recorded calls of a real machine on a machine of the lab, and compares the
// answers. calls.yaml has a reason for each difference; a reason without a difference is a failure too.
func TestTheLabAnswersAsRecorded(t *testing.T) {
	t.Parallel()

	theirs, err := recording.Read("recording/recordings/" + talosVersion + ".yaml")
	require.NoError(t, err)

	l := newLab(t)
	l.boot(11)

	m, err := recording.New(l.address(11)+":50000", l.address(11), talosVersion)
	require.NoError(t, err)

	ours, err := m.Record(l.context())
	require.NoError(t, err)
	require.Len(t, theirs.Calls, len(ours.Calls), "calls.yaml has other calls: record again")

	// Replies are compared in their written form.
	path := t.TempDir() + "/ours.yaml"
	require.NoError(t, ours.Write(path))
	written, err := recording.Read(path)
	require.NoError(t, err)

	for i, want := range theirs.Calls {
		have, reason := written.Calls[i], ours.Calls[i].Differs
		require.Equal(t, want.Title(), have.Title(), "calls.yaml has other calls: record again")

		if reason == "" {
			assert.Equal(t, want, have, want.Title())
		} else {
			assert.NotEqual(t, want, have, "%s is listed as a difference and is none", want.Title())
		}
	}
}
