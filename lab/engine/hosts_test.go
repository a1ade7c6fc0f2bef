package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// prepared is a stack file whose hosts are prepared: text for pve1 and pve2 behind their addresses, and one control
// plane on pve2.
func (w *world) prepared(t *testing.T, pve1, pve2 string) string {
	t.Helper()

	c := one(1, 0)
	c.VIP = 0
	text := stack{Network: w.network, Clusters: []cluster{c}}.yaml(t)
	text = strings.Replace(text, ".0.11}", ".0.11"+pve1+"}", 1)
	text = strings.Replace(text, ".0.12}", ".0.12"+pve2+"}", 1)

	return strings.Replace(text, "controlPlane: {", "controlPlane: {hosts: [pve2], ", 1)
}

const wholePrep = ", prep: {zfsArcMaxGiB: 8, repositories: no-subscription}, gpus: [{name: rtx4000, pci: '01:00', generation: ada}]"

func (w *world) hostFile(host, name string) string {
	return filepath.Join(w.dir, "hosts", host, filepath.FromSlash(name))
}

func (w *world) readHost(host, name string) string {
	w.t.Helper()

	b, err := os.ReadFile(w.hostFile(host, name))
	if os.IsNotExist(err) {
		return ""
	}

	require.NoError(w.t, err)

	return string(b)
}

// reboot reboots a host and waits for it.
func (w *world) reboot(host string) {
	w.t.Helper()

	before := w.readHost(host, "proc/sys/kernel/random/boot_id")
	require.NoError(w.t, w.lab.Data.RebootHost(host))
	require.Eventually(w.t, func() bool {
		h, _ := w.lab.Data.Host(host)

		return h.Online && w.readHost(host, "proc/sys/kernel/random/boot_id") != before
	}, within, 50*time.Millisecond)
}

// awaitHost waits until a host that reboots answers again.
func (w *world) awaitHost(host string) {
	w.t.Helper()

	require.Eventually(w.t, func() bool {
		h, _ := w.lab.Data.Host(host)

		return h.Online && !h.Rebooting
	}, within, 50*time.Millisecond)
}

// awaitTasks waits until no task of Proxmox runs.
func (w *world) awaitTasks() {
	w.t.Helper()

	require.Eventually(w.t, func() bool {
		return !slices.ContainsFunc(w.lab.Data.Tasks(), func(t datacentre.Task) bool { return t.EndTime.IsZero() })
	}, within, 50*time.Millisecond)
}

// hostOutput is what the stack says of a host.
func hostOutput(t *testing.T, outputs auto.OutputMap, host string) map[string]any {
	t.Helper()

	hosts, ok := outputs["hosts"].Value.(map[string]any)
	require.True(t, ok, "%v", outputs["hosts"].Value)

	of, ok := hosts[host].(map[string]any)
	require.True(t, ok, "%v", hosts)

	return of
}

// TestHostPreparation takes a host from its installation through preparation, a reboot, a hand edit and removal.
func TestHostPreparation(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	plain, prepared := w.prepared(t, "", ""), w.prepared(t, wholePrep, ", prep: {}")
	files := []string{
		"etc/kernel/cmdline", "etc/default/grub", "etc/modprobe.d/vfio.conf", "etc/modprobe.d/zfs.conf",
		"etc/modprobe.d/blacklist-gpu.conf",
		"etc/modules-load.d/vfio.conf", "etc/apt/sources.list.d/pve-enterprise.sources",
		"etc/apt/sources.list.d/proxmox.sources", "etc/apt/sources.list.d/ceph.sources",
		"var/lib/talos-proxmox/revision", "sys/module/zfs/parameters/zfs_arc_max",
	}
	before := map[string]string{}

	w.up(plain)

	for _, host := range []string{"pve1", "pve2"} {
		for _, file := range files {
			before[host+" "+file] = w.readHost(host, file)
		}
	}

	// Fresh: prepared, and what a reboot has to complete is reported. No machine uses the GPU, so that nothing fails.
	done := w.up(prepared)
	assert.Equal(
		t, []string{"Command pve1-apply", "Command pve2-apply", "ProxmoxHostPrep pve1", "ProxmoxHostPrep pve2"},
		done.named("create"),
	)
	assert.Contains(t, w.readHost("pve1", "etc/kernel/cmdline"), " iommu=pt\n")
	assert.Contains(t, w.readHost("pve2", "etc/default/grub"), `GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"`)
	assert.Equal(t, "8589934592\n", w.readHost("pve1", "sys/module/zfs/parameters/zfs_arc_max"))
	of := hostOutput(t, w.outputs(), "pve1")
	assert.Equal(t, true, of["rebootRequired"])
	assert.Contains(t, of["report"], "a reboot has to complete: 0000:01:00.0 is bound to nouveau")
	assert.Contains(t, of["changedFiles"], "/etc/kernel/cmdline")

	// Unchanged, although the reboot is still to come.
	_, err := w.preview(prepared, optpreview.ExpectNoChanges())
	require.NoError(t, err, w.said())
	done = w.up(prepared, optup.ExpectNoChanges())
	assert.Empty(t, done)

	w.reboot("pve1")

	done = w.up(prepared, optup.ExpectNoChanges())
	assert.Empty(t, done)
	of = hostOutput(t, w.outputs(), "pve1")
	assert.Equal(t, false, of["rebootRequired"])
	assert.Contains(t, fmt.Sprint(of["report"]), "IOMMU group 13, alone in it, bound to vfio-pci")

	// A file is changed manually: the preview shows it, up repairs it, the next one has nothing to do.
	require.NoError(
		t, os.WriteFile(w.hostFile("pve1", "etc/modprobe.d/zfs.conf"), []byte("options zfs zfs_arc_max=1\n"), 0o600),
	)

	shown, err := w.preview(prepared)
	require.NoError(t, err)
	assert.Equal(t, 1, shown.ChangeSummary["update"])
	assert.Contains(t, w.said(), "hosts[0].prep: pve1 is not as wanted, up changes /etc/modprobe.d/zfs.conf")

	done = w.up(prepared)
	assert.Equal(t, []string{"Command pve1-apply"}, done.named("update"))
	assert.Contains(t, w.readHost("pve1", "etc/modprobe.d/zfs.conf"), "\noptions zfs zfs_arc_max=8589934592\n")
	done = w.up(prepared, optup.ExpectNoChanges())
	assert.Empty(t, done)

	// Taken away: every file as it was, the hand edit included.
	done = w.up(plain)
	assert.Equal(
		t, []string{"Command pve1-apply", "Command pve2-apply", "ProxmoxHostPrep pve1", "ProxmoxHostPrep pve2"},
		done.named("delete"),
	)

	before["pve1 etc/modprobe.d/zfs.conf"] = "options zfs zfs_arc_max=1\n"

	for _, host := range []string{"pve1", "pve2"} {
		for _, file := range files {
			assert.Equal(t, before[host+" "+file], w.readHost(host, file), "%s of %s", file, host)
		}
	}
}
