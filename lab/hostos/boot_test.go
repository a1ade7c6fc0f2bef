package hostos_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// reboot waits until the host is up again, or has failed to boot.
func (h *host) reboot(t *testing.T) datacentre.Host {
	t.Helper()
	require.NoError(t, h.dc.RebootHost("pve1"))
	require.Eventually(
		t, func() bool {
			v := h.view(t)

			return !v.Rebooting || v.Problem != ""
		}, time.Minute, time.Millisecond,
	)

	return h.view(t)
}

func TestAHostWithoutWhatABootNeedsStaysDown(t *testing.T) {
	t.Parallel()

	grub := datacentre.HostOptions{Name: "pve1"}

	for name, test := range map[string]struct {
		host            datacentre.HostOptions
		script, problem string
	}{
		"no kernel":    {zfsHost(), "rm $root/boot/vmlinuz-*", "no kernel in /boot"},
		"no initramfs": {grub, "rm $root/boot/initrd.img-*", "no initramfs for 6.17.2-1-pve"},
		"half an initramfs": {
			grub, "echo '{' >$root/boot/initrd.img-6.17.2-1-pve", "the initramfs of 6.17.2-1-pve is damaged",
		},
		"no entry of systemd-boot": {zfsHost(), "rm -r $root/var/lib/lab/esp/*/loader", "systemd-boot has no entry"},
		"no configuration of GRUB": {grub, ": >$root/boot/grub/grub.cfg", "GRUB has no configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := newHost(t, test.host)
			h.bash(t, test.script)
			assert.Contains(t, h.reboot(t).Problem, test.problem)
		})
	}
}

func TestTheTreeFollowsTheHost(t *testing.T) {
	t.Parallel()

	h := newHost(t, zfsHost())
	off := false

	require.NoError(t, h.dc.ChangeHost("pve1", datacentre.HostChange{MovePCI: [2]string{"0000:01:00", "0000:41:00"}}))
	h.reboot(t)
	assert.Equal(t, "0000:00:01.1\n0000:41:00.0\n0000:41:00.1\n", h.bash(t, "ls $root/sys/bus/pci/devices"))
	assert.Equal(t, "0000:41:00.0\n", h.bash(t, "ls $root/sys/bus/pci/drivers/nouveau"))
	assert.Empty(t, h.bash(t, "find $root/sys -xtype l; find $root/sys -name '0000:01:00*'"))

	require.NoError(t, h.dc.ChangeHost("pve1", datacentre.HostChange{IOMMU: &off}))
	h.reboot(t)
	assert.Equal(t, "none\n", h.bash(t, "ls $root/sys/kernel $root/sys/class 2>/dev/null | grep iommu || echo none"))
}

func TestAKernelParameterBelongsToWhoeverWroteIt(t *testing.T) {
	t.Parallel()

	h := newHost(t, zfsHost())
	parameter := filepath.Join(h.root, "sys/module/zfs/parameters/zfs_arc_max")
	require.NoError(t, os.WriteFile(parameter, []byte("5368709120\n"), 0o600))

	// The files are written again before the model knows the new value.
	require.NoError(t, h.dc.ShowHost("pve1"))
	assert.Equal(t, "5368709120\n", h.bash(t, "cat $root/sys/module/zfs/parameters/zfs_arc_max"))

	highest, lowest, ok := h.system.ReadARC(h.view(t))
	require.True(t, ok)
	require.NoError(t, h.dc.SetARC("pve1", highest, lowest))
	assert.Equal(t, "5368709120\n", h.bash(t, "awk '/^c_max/ {print $3}' $root/proc/spl/kstat/zfs/arcstats"))

	// A limit below the minimum, 1/32 of the memory, is ignored.
	require.NoError(t, h.dc.SetARC("pve1", 1<<30, 0))
	assert.Equal(t, "102005473280\n", h.bash(t, "awk '/^c_max/ {print $3}' $root/proc/spl/kstat/zfs/arcstats"))

	h.reboot(t)
	assert.Equal(t, "0\n", h.bash(t, "cat $root/sys/module/zfs/parameters/zfs_arc_max"), "until the next boot")
}
