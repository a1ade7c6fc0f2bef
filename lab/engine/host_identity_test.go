package engine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSwappedAddressesChangeNothing swaps the addresses of two hosts. If the hosts are prepared, the preview names
// both; if not, the script that would build a template refuses. Neither host is changed, and the right addresses
// complete the job.
func TestSwappedAddressesChangeNothing(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	first, second := w.network+".0.11", w.network+".0.12"
	files := []string{"etc/kernel/cmdline", "etc/default/grub", "etc/modprobe.d/vfio.conf", "var/lib/talos-proxmox/owner"}
	contents := func() map[string]string {
		all := map[string]string{}

		for _, host := range []string{"pve1", "pve2"} {
			for _, file := range files {
				all[host+" "+file] = w.readHost(host, file)
			}
		}

		return all
	}
	before := contents()

	w.swappedHosts = true

	prepared := w.stackWithPrep(t, ", prep: {}", ", prep: {}")
	for _, output := range []string{w.failedPreview(prepared), w.failedUp(prepared)} {
		assert.Contains(
			t, output,
			"hosts[0].address: "+second+
				" is not pve1: the own name of the host that answers there is pve2, and Proxmox VE knows it as pve2",
		)
		assert.Contains(
			t, output,
			"hosts[1].address: "+first+
				" is not pve2: the own name of the host that answers there is pve1, and Proxmox VE knows it as pve1",
		)
	}

	plain := w.stack(1, 1).yaml(t)

	_, err := w.tryUp(t.Context(), plain)
	require.Error(t, err)
	assert.Contains(
		t, w.output(),
		"this is not pve1: the host's own name is pve2, and Proxmox VE knows it as pve2; nothing was changed on it",
	)
	assert.Empty(t, w.lab.Data.VMs(), "neither templates nor machines")
	assert.Equal(t, before, contents())

	w.swappedHosts = false
	w.up(plain)
	w.requireRunning(2)
}
