package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/terminal/terminaltest"
	"talos-proxmox/lab/datacentre"
)

func TestHostCommands(t *testing.T) {
	t.Parallel()

	c := newCommand(t, "127.181")
	c.run("start", "--network", c.network, "--speed", "1000", "--hosts", "3")

	list := c.run("host", "list")
	assert.Contains(t, list, "pve1 (127.181.0.11): up\n  AMD EPYC 4564P 16-Core Processor, 16 cores, 98304 MiB, EFI, systemd-boot, root on ZFS pool rpool")
	assert.Regexp(t, `0000:01:00\.0 +10de:27b0 +group 13 +nouveau +AD104GL`, list)
	assert.Contains(
		t, list,
		"pve2 (127.181.0.12): up\n  Intel(R) Xeon(R) E-2388G CPU @ 3.20GHz, 16 cores, 65536 MiB, EFI, grub, root on ext4",
	)
	assert.Regexp(t, `pve3 +127\.181\.0\.13 +up .* quiet +01:00\.0 nouveau`, c.run("status"))

	assert.Contains(t, c.run("host", "change", "pve1", "--move", "0000:01:00=0000:41:00"), "at its next boot")
	assert.Contains(t, c.run("host", "list"), "0000:01:00.0", "not before")
	assert.Contains(t, c.run("host", "reboot", "pve1"), "pve1 is up with initrd=")
	assert.Contains(t, c.run("status"), "41:00.0 nouveau")

	c.run("host", "change", "pve3", "--iommu=off")
	c.run("host", "reboot", "pve3")
	assert.Contains(t, c.run("host", "list"), "IOMMU off")

	// Changes survive a restart of the lab.
	c.run("stop")
	c.run("start", "--network", c.network, "--speed", "1000", "--hosts", "3")
	assert.Contains(t, c.run("status"), "41:00.0 nouveau")

	c.run("host", "disk", "pve2", "full")
	assert.Regexp(t, `pve2 +127\.181\.0\.12 +up, disk full`, c.run("status"))
	c.run("host", "disk", "pve2", "ok")
	assert.NotContains(t, c.run("status"), "disk full")
	assert.Contains(t, c.fails(1, "host", "disk", "pve2", "wet"), `disk state "wet" is unknown: use full, read-only or ok`)

	assert.Contains(
		t, c.fails(1, "host", "change", "pve1", "--move", "0000:01:00=0000:41:00"), "slot 0000:41:00 is taken by NVIDIA",
	)
	assert.Contains(t, c.fails(1, "host", "change", "pve1", "--remove", "0000:77:00"), "slot 0000:77:00 is empty")
	assert.Contains(t, c.fails(1, "host", "reboot", "pve9"), "hostname lookup 'pve9' failed")
}

func TestParseChange(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct{ move, group, iommu, want string }{
		"nothing":            {want: "nothing to change: set --move, --group, --remove or --iommu"},
		"half a pair":        {move: "0000:01:00", want: `--move "0000:01:00" is not a pair`},
		"a pair without end": {group: "0000:01:00=", want: `--group "0000:01:00=" is not a pair`},
		"a switch":           {iommu: "maybe", want: `--iommu "maybe": set on or off`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := parseChange(tc.move, tc.group, "", tc.iommu)
			assert.ErrorContains(t, err, tc.want)
		})
	}

	change, err := parseChange("", "0000:01:00=0000:02:00.0", "0000:03:00", "off")
	require.NoError(t, err)
	assert.Equal(t, [2]string{"0000:01:00", "0000:02:00.0"}, change.GroupWith)
	assert.Equal(
		t, datacentre.HostChange{GroupWith: change.GroupWith, RemovePCI: "0000:03:00", IOMMU: change.IOMMU}, change,
	)
	assert.False(t, *change.IOMMU)
}

// TestAFullDisk is told before a lab or a run needs it.
func TestAFullDisk(t *testing.T) {
	t.Parallel()

	require.NoError(t, checkSpace(t.TempDir()))
	assert.EqualError(t, checkSpace("/proc"), // which has no space at all
		"/proc has 0 MiB of space left, and the lab needs 20: free some, or name another folder with --dir")
}

// TestTheTerminalIsNotAsked for its background colour when the program starts, which takes 5 s if it does not answer.
func TestTheTerminalIsNotAsked(t *testing.T) {
	t.Parallel()

	terminaltest.RequireQuietStart(t)
}
