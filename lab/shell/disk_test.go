package shell_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
)

func TestFullOrReadOnlyDisk(t *testing.T) {
	t.Parallel()

	full := start(t, hostOptions{speed: 10000, hardware: zfsHost})
	fixed := start(t, hostOptions{speed: 10000, hardware: zfsHost})
	grub := start(t, hostOptions{speed: 10000, hardware: intelHost})

	require.NoError(t, full.dc.SetHostDisk("pve1", datacentre.DiskFull))
	require.NoError(t, fixed.dc.SetHostDisk("pve1", datacentre.DiskReadOnly))
	require.NoError(t, grub.dc.SetHostDisk("pve1", datacentre.DiskReadOnly))

	tests := map[string]struct {
		h               *host
		command, stderr string
		status          int
	}{
		"an image": {full, "update-initramfs -u -k all", "E: mkinitramfs failure: No space left on device\nupdate-initramfs: failed for /boot/initrd.img-6.17.2-1-pve with 1.\n", 1},
		"GRUB's configuration": {
			grub, "update-grub", "Generating grub configuration file ...\n/usr/sbin/grub-mkconfig: Read-only file system\n", 1,
		},
		"the boot loader's partition": {full, "proxmox-boot-tool refresh >/dev/null", "", 0},
		"a redirection":               {full, "echo x >/etc/x", "open /etc/x: no space left on device\n", 1},
		"an existing file": {
			fixed, "echo x >>$HOST_ROOT/etc/hostname", "open /etc/hostname: read-only file system\n", 1,
		},
		"a copy": {
			fixed, "cp $HOST_ROOT/etc/hosts $HOST_ROOT/etc/x 2>&1 | grep -o 'Read-only file system'", "", 0,
		},
		"a change in place": {
			full, "sed -i s/a/b/ $HOST_ROOT/etc/hosts 2>&1 | grep -o 'No space left on device'", "", 0,
		},
		"a new name on a full disk": {
			full, "mv $HOST_ROOT/etc/hostname $HOST_ROOT/etc/hostname2 && mv $HOST_ROOT/etc/hostname2 $HOST_ROOT/etc/hostname",
			"", 0,
		},
		"an existing folder":              {fixed, "mkdir -p $HOST_ROOT/etc", "", 0},
		"a temporary file":                {fixed, `f=$(mktemp) && echo x >"$f" && cp "$f" "$f.2" && rm "$f" "$f.2"`, "", 0},
		"a lock":                          {fixed, "flock -w 1 /run/lock/x true", "", 0},
		"reading":                         {fixed, "cat $HOST_ROOT/etc/hostname >/dev/null </etc/hostname", "", 0},
		"a parameter of the kernel":       {fixed, "echo 5368709120 >/sys/module/zfs/parameters/zfs_arc_max", "", 0},
		"a copy that leaves the disk":     {full, "cp $HOST_ROOT/etc/hosts $HOST_ROOT/tmp/x", "", 0},
		"a file that need not be removed": {fixed, "rm -f $HOST_ROOT/etc/none", "", 0},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, stderr, status := test.h.run(t, test.command, "")
			assert.Equal(t, test.stderr, stderr)
			assert.Equal(t, test.status, status)
		})
	}
}

func TestHostScriptOnBadDisk(t *testing.T) {
	t.Parallel()

	for _, disk := range []string{datacentre.DiskFull, datacentre.DiskReadOnly} {
		t.Run(disk, func(t *testing.T) {
			t.Parallel()

			h := start(t, hostOptions{speed: 10000, hardware: zfsHost})
			text := scripts.Host(
				scripts.HostParameters(
					spec.Host{Name: "pve1", Prep: &spec.Prep{IOMMU: true, Repositories: "no-subscription"}}, "talos-proxmox/test",
					false,
				),
			)
			sums := func() string {
				stdout, _, _ := h.run(t, "cd $HOST_ROOT/etc && find . -type f -exec sha256sum {} + | sort -k2", "")

				return stdout
			}
			before := sums()

			require.NoError(t, h.dc.SetHostDisk("pve1", disk))

			_, stderr, status := h.run(t, scripts.HostCommand(scripts.ActionApply), text)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, "read-only or full")
			assert.Equal(t, before, sums(), "nothing was changed")

			require.NoError(t, h.dc.SetHostDisk("pve1", ""))

			_, stderr, status = h.run(t, scripts.HostCommand(scripts.ActionApply), text)
			assert.Zero(t, status, stderr)
		})
	}
}
