package scripts

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	tr := newTree(t, machine{gpu: true, zfs: true})
	before := tr.snapshot(false)
	r := tr.run(ActionFacts, hostOf(withGPU))
	require.NoError(t, r.err, r.stderr)
	t.Log(r.stdout, r.stderr)
	tr.unchanged(before, false, "facts")
	t.Log(tr.apply(hostOf(withGPU)))
	for _, f := range []string{kernelFile, vfioFile, zfsFile, "etc/modules-load.d/vfio.conf", "etc/modprobe.d/blacklist-gpu.conf", arcMax} {
		t.Log(f, "\n", tr.read(f))
	}
	t.Log(tr.calls())
	again := tr.snapshot(true)
	t.Log(tr.apply(hostOf(withGPU)))
	tr.unchanged(again, true, "second")
	tr.restore(hostOf(withGPU))
	tr.unchanged(before, false, "restore")
	assert.NotEmpty(t, "")
}
