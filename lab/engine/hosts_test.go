package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// stackWithPrep is a stack file with YAML behind the addresses of pve1 and pve2, and one control plane on pve2.
func (w *world) stackWithPrep(t *testing.T, pve1, pve2 string) string {
	t.Helper()

	c := clusterOne(1, 0)
	c.VIP = 0
	text := stack{Network: w.network, Clusters: []cluster{c}}.yaml(t)
	text = strings.Replace(text, ".0.11}", ".0.11"+pve1+"}", 1)
	text = strings.Replace(text, ".0.12}", ".0.12"+pve2+"}", 1)

	return strings.Replace(text, "controlPlane: {", "controlPlane: {hosts: [pve2], ", 1)
}

const fullPrep = ", prep: {zfsArcMaxGiB: 8, repositories: no-subscription}, gpus: [{name: rtx4000, pci: '01:00', generation: ada}]"

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

// awaitHost waits until a rebooting host answers again.
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

// hostOutput returns the stack's output about a host.
func (w *world) hostOutput(name string) map[string]any {
	w.t.Helper()

	hosts, ok := w.outputs()["hosts"].Value.(map[string]any)
	require.True(w.t, ok, "%v", w.outputs()["hosts"].Value)

	host, ok := hosts[name].(map[string]any)
	require.True(w.t, ok, "%v", hosts)

	return host
}

// TestHostPreparation takes a host from its installation through preparation, a reboot, a manual edit and removal.
func TestHostPreparation(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	plain, prepared := w.stackWithPrep(t, "", ""), w.stackWithPrep(t, fullPrep, ", prep: {}")
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

	// Fresh: prepared, and the report says what needs a reboot. No machine uses the GPU, so that nothing fails.
	done := w.up(prepared)
	assert.Equal(
		t, []string{"Command pve1-apply", "Command pve2-apply", "ProxmoxHostPrep pve1", "ProxmoxHostPrep pve2"},
		done.withOp("create"),
	)
	assert.Contains(t, w.readHost("pve1", "etc/kernel/cmdline"), " iommu=pt\n")
	assert.Contains(t, w.readHost("pve2", "etc/default/grub"), `GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"`)
	assert.Equal(t, "8589934592\n", w.readHost("pve1", "sys/module/zfs/parameters/zfs_arc_max"))
	report := w.hostOutput("pve1")
	assert.Equal(t, true, report["rebootRequired"])
	assert.Contains(t, report["report"], "a reboot has to complete: 0000:01:00.0 is bound to nouveau")
	assert.Contains(t, report["changedFiles"], "/etc/kernel/cmdline")

	// Unchanged, although the reboot is pending.
	_, err := w.preview(prepared, optpreview.ExpectNoChanges())
	require.NoError(t, err, w.output())
	done = w.up(prepared, optup.ExpectNoChanges())
	assert.Empty(t, done)

	w.reboot("pve1")

	done = w.up(prepared, optup.ExpectNoChanges())
	assert.Empty(t, done)

	report = w.hostOutput("pve1")
	assert.Equal(t, false, report["rebootRequired"])
	assert.Contains(t, fmt.Sprint(report["report"]), "IOMMU group 13, alone in it, bound to vfio-pci")

	// A manual change of a file: the preview shows it, up repairs it, and the next up has nothing to do.
	require.NoError(
		t, os.WriteFile(w.hostFile("pve1", "etc/modprobe.d/zfs.conf"), []byte("options zfs zfs_arc_max=1\n"), 0o600),
	)

	shown, err := w.preview(prepared)
	require.NoError(t, err)
	assert.Equal(t, 1, shown.ChangeSummary["update"])
	assert.Contains(t, w.output(), "hosts[0].prep: pve1 is not as wanted, up changes /etc/modprobe.d/zfs.conf")

	done = w.up(prepared)
	assert.Equal(t, []string{"Command pve1-apply"}, done.withOp("update"))
	assert.Contains(t, w.readHost("pve1", "etc/modprobe.d/zfs.conf"), "\noptions zfs zfs_arc_max=8589934592\n")
	done = w.up(prepared, optup.ExpectNoChanges())
	assert.Empty(t, done)

	// Without preparation every file is as before, the manual edit included.
	done = w.up(plain)
	assert.Equal(
		t, []string{"Command pve1-apply", "Command pve2-apply", "ProxmoxHostPrep pve1", "ProxmoxHostPrep pve2"},
		done.withOp("delete"),
	)

	before["pve1 etc/modprobe.d/zfs.conf"] = "options zfs zfs_arc_max=1\n"

	for _, host := range []string{"pve1", "pve2"} {
		for _, file := range files {
			assert.Equal(t, before[host+" "+file], w.readHost(host, file), "%s of %s", file, host)
		}
	}
}
