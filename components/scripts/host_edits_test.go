package scripts

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

const (
	blockBegin    = "# talos-proxmox begin: managed, edits between these lines are undone\n"
	blockEnd      = "# talos-proxmox end\n"
	disabledBlock = blockBegin + "Enabled: no\n" + blockEnd
	sourcesFolder = "etc/apt/sources.list.d/"
	signed        = "Signed-By: /usr/share/keyrings/proxmox-archive-keyring.gpg\n"
	own9          = "Types: deb\nURIs: http://download.proxmox.com/debian/pve\nSuites: trixie\nComponents: pve-no-subscription\n"
)

func TestManualEdits(t *testing.T) {
	t.Parallel()

	zfsBlock := blockBegin + "options zfs zfs_arc_max=10307502080\n# talos-proxmox end\n"
	for name, test := range map[string]struct {
		before  string // zfs.conf; "-" = no file
		edit    string // the same, after the first apply
		drift   bool
		applied string
		removed string // after removal; "-" = no file
	}{
		"lines around the block stay": {
			"-", "# mine\n" + zfsBlock + "options zfs a=1\n", false, "# mine\n" + zfsBlock + "options zfs a=1\n",
			"# mine\noptions zfs a=1\n",
		},
		"lines in the block are undone": {
			"-", strings.ReplaceAll(zfsBlock, "10307502080", "1"), true, zfsBlock, "-",
		},
		"a line that is added in the block goes": {
			"# old\n", "# old\n" + strings.Replace(zfsBlock, "options", "options zfs x=1\noptions", 1), true,
			"# old\n" + zfsBlock, "# old\n",
		},
		"the block is taken out": {
			"# old\n", "# old\n# new\n", true, "# old\n# new\n" + zfsBlock, "# old\n# new\n",
		},
		"the file is removed":                       {"-", "-", true, zfsBlock, "-"},
		"the file is removed that was there before": {"# old\n", "-", true, zfsBlock, "-"},
		"the wanted line is written manually": {
			"-", "options zfs zfs_arc_max=10307502080\n", true, "options zfs zfs_arc_max=10307502080\n",
			"options zfs zfs_arc_max=10307502080\n",
		},
		"an original without a final newline": {
			"# old", "# old\n" + zfsBlock + "# new\n", false, "# old\n" + zfsBlock + "# new\n", "# old\n# new\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, h := newFakeHost(t, hostSpec{zfs: true}), preparedHost()
			host.writeOrRemove(zfsFile, test.before)
			host.apply(h)
			host.writeOrRemove(zfsFile, test.edit)

			planned := host.facts(h)
			assert.Equal(t, test.drift, len(planned.Changes) > 0, planned.Changes)

			done := host.apply(h)
			assert.Equal(t, planned.Changes, done.Applied)
			assert.Equal(t, test.applied, host.read(zfsFile))
			assert.Empty(t, host.facts(h).Changes)

			host.restore(h)

			if test.removed == "-" {
				assert.NoFileExists(t, host.path(zfsFile))
			} else {
				assert.Equal(t, test.removed, host.read(zfsFile))
			}
		})
	}
}

// writeOrRemove writes a file; "-" removes it.
func (host *fakeHost) writeOrRemove(name, content string) {
	host.t.Helper()

	if content == "-" {
		require.NoError(host.t, os.RemoveAll(host.path(name)))

		return
	}

	host.write(name, content)
}

func TestModeAndOwnerAreKept(t *testing.T) {
	t.Parallel()
	host := newFakeHost(t, hostSpec{zfs: true, gpu: true, files: map[string]string{zfsFile: "# mine\n"}})
	require.NoError(t, os.Chmod(host.path(zfsFile), 0o640))
	require.NoError(t, os.Chmod(host.path(kernelFile), 0o600))

	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(host.path(zfsFile), 1234, 1234))
	}

	before := host.snapshot(false)
	host.apply(preparedHost(withGPU))

	for _, file := range []string{zfsFile, kernelFile} {
		current, original := host.snapshot(false)["/"+file], before["/"+file]
		assert.Equal(t, strings.Join(strings.Fields(original)[:2], " "), strings.Join(strings.Fields(current)[:2], " "), file)
	}

	info, err := os.Stat(host.path(vfioFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode())
	host.restore(preparedHost(withGPU))
	host.assertUnchanged(before, false, "removed")
}

func TestManuallyChangedLiveSettingIsReset(t *testing.T) {
	t.Parallel()
	host := newFakeHost(t, hostSpec{zfs: true})
	host.write(arcMax, "4294967296\n")
	host.apply(preparedHost())
	host.write(arcMax, "1\n")

	assert.Equal(t, []string{"/sys/module/zfs/parameters/zfs_arc_max"}, host.facts(preparedHost()).Changes)
	host.apply(preparedHost())
	assert.Equal(t, "10307502080\n", host.read(arcMax))
	calls := len(host.changingCalls())
	host.restore(preparedHost())
	assert.Equal(t, "4294967296\n", host.read(arcMax), "as it was before the first run")
	assert.Len(t, host.changingCalls(), calls+2, "the boot loader and initramfs are updated after the removal, too")
}

func TestRepositories(t *testing.T) {
	t.Parallel()

	runCases(t, map[string]repositoriesCase{
		"PVE 9 without a subscription": {"9.1.1", "no-subscription", "", nil, map[string]string{
			sourcesFolder + "pve-enterprise.sources": enterprise9 + disabledBlock,
			sourcesFolder + "ceph.sources":           ceph9 + disabledBlock,
			sourcesFolder + "proxmox.sources":        blockBegin + own9 + signed + blockEnd,
		}},
		"PVE 9 with one: nothing to do": {
			"9.1.1", "enterprise", "", nil,
			map[string]string{
				sourcesFolder + "pve-enterprise.sources": enterprise9, sourcesFolder + "ceph.sources": ceph9, sourcesFolder + "proxmox.sources": "",
			},
		},
		"PVE 9 whose own file has it already": {"9.1.1", "no-subscription", "", map[string]string{
			sourcesFolder + "mine.sources": own9,
		}, map[string]string{
			sourcesFolder + "mine.sources": own9, sourcesFolder + "proxmox.sources": "", sourcesFolder + "pve-enterprise.sources": enterprise9 + disabledBlock,
		}},
		"PVE 9 whose entry is switched off is switched on": {"9.1.1", "no-subscription", "", map[string]string{
			sourcesFolder + "mine.sources": own9 + "Enabled: false\n",
		}, map[string]string{
			sourcesFolder + "mine.sources":    own9 + blockBegin + "Enabled: yes\n# was: Enabled: false\n" + blockEnd,
			sourcesFolder + "proxmox.sources": "",
		}},
		"PVE 9, two entries in one file, the last without a newline": {"9.1.1", "no-subscription", "", map[string]string{
			sourcesFolder + "pve-enterprise.sources": "# mine\n" + own9 + "\n" + strings.TrimSuffix(enterprise9, "\n"),
		}, map[string]string{
			sourcesFolder + "pve-enterprise.sources": "# mine\n" + own9 + "\n" + enterprise9 + disabledBlock, sourcesFolder + "proxmox.sources": "",
		}},
		"PVE 9, an entry that is off already": {"9.1.1", "no-subscription", "", map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + "Enabled: no\n",
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + "Enabled: no\n",
		}},
		"PVE 9 back to the enterprise repository": {"9.1.1", "enterprise", "", map[string]string{
			sourcesFolder + "proxmox.sources": own9, sourcesFolder + "pve-enterprise.sources": enterprise9 + "Enabled: no\n",
		}, map[string]string{
			sourcesFolder + "proxmox.sources":        own9 + disabledBlock,
			sourcesFolder + "pve-enterprise.sources": enterprise9 + blockBegin + "Enabled: yes\n# was: Enabled: no\n" + blockEnd,
		}},
		"PVE 8 without a subscription": {"8.4.1", "no-subscription", "", nil, map[string]string{
			sourcesFolder + "pve-enterprise.list": blockBegin + "# was: " + enterprise8 + blockEnd,
			sourcesFolder + "pve-no-subscription.list": blockBegin +
				"deb http://download.proxmox.com/debian/pve bookworm pve-no-subscription\n" + blockEnd,
		}},
		"PVE 8 whose main list has it": {"8.4.1", "no-subscription", "", map[string]string{
			"etc/apt/sources.list": "deb http://download.proxmox.com/debian/pve bookworm pve-no-subscription\n",
		}, map[string]string{
			"etc/apt/sources.list":                     "deb http://download.proxmox.com/debian/pve bookworm pve-no-subscription\n",
			sourcesFolder + "pve-no-subscription.list": "",
		}},
		"PVE 8 whose entry is commented out": {"8.4.1", "enterprise", "", map[string]string{
			sourcesFolder + "pve-enterprise.list": "# " + enterprise8,
		}, map[string]string{
			sourcesFolder + "pve-enterprise.list": blockBegin + enterprise8 + "# was: # " + enterprise8 + blockEnd,
		}},
	})
}

// repositoriesCase is a repository setting on a host with these daemons of Ceph, and the expected files.
type repositoriesCase struct {
	pve, wish, ceph string
	files           map[string]string
	want            map[string]string
}

func (c repositoriesCase) check(t *testing.T) {
	t.Helper()

	host := newFakeHost(t, hostSpec{pve: c.pve, files: c.files})
	for daemon := range strings.FieldsSeq(c.ceph) {
		host.write("usr/bin/"+daemon, "")
	}

	before := host.snapshot(false)
	h := preparedHost(func(h *spec.Host) { h.Prep.IOMMU = false; h.Prep.Repositories = c.wish })
	host.apply(h)

	for file, content := range c.want {
		assert.Equal(t, content, host.read(file), file)
	}

	assert.Empty(t, host.facts(h).Changes)
	assert.Empty(t, host.changingCalls(), "repositories need neither a reboot nor an initramfs")
	host.restore(h)
	host.assertUnchanged(before, false, "removed")
}

// TestCephRepositories expects that a host with Ceph keeps getting its updates: the same release and suite, from the
// other kind of repository.
func TestCephRepositories(t *testing.T) {
	t.Parallel()

	const (
		both  = "ceph-mon ceph-osd"
		paid8 = "deb https://enterprise.proxmox.com/debian/ceph-reef bookworm enterprise\n"
		free8 = "deb http://download.proxmox.com/debian/ceph-reef bookworm no-subscription\n"
		free9 = "Types: deb\nURIs: http://download.proxmox.com/debian/ceph-squid\nSuites: trixie\nComponents: no-subscription\n" + signed
	)

	test9 := strings.ReplaceAll(strings.ReplaceAll(free9, "no-subscription", "test"), "squid", "tentacle")
	runCases(t, map[string]repositoriesCase{
		"the enterprise entry is replaced": {
			"9.1.1", "no-subscription", both, nil,
			map[string]string{sourcesFolder + "ceph.sources": ceph9 + disabledBlock + blockBegin + "\n" + free9 + blockEnd},
		},
		"where only its disks are here": {
			"9.1.1", "no-subscription", "ceph-osd", nil,
			map[string]string{sourcesFolder + "ceph.sources": ceph9 + disabledBlock + blockBegin + "\n" + free9 + blockEnd},
		},
		"without Ceph nothing needs it": {
			"9.1.1", "no-subscription", "", nil, map[string]string{sourcesFolder + "ceph.sources": ceph9 + disabledBlock},
		},
		"an entry that is off is not needed": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + "Enabled: no\n",
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + "Enabled: no\n",
		}},
		"the other entry is there": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "mine.sources": free9,
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + disabledBlock, sourcesFolder + "mine.sources": free9,
		}},
		"the other entry is there and off": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "mine.sources": free9 + "Enabled: no\n",
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + disabledBlock,
			sourcesFolder + "mine.sources": free9 + blockBegin + "Enabled: yes\n# was: Enabled: no\n" + blockEnd,
		}},
		"another release's entry is none, and a test's stays": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "mine.sources": strings.Replace(free9, "squid", "tentacle", 1), sourcesFolder + "test.sources": test9,
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + disabledBlock + blockBegin + "\n" + free9 + blockEnd, sourcesFolder + "test.sources": test9,
		}},
		"everything in one file": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "ceph.sources":           "",
			sourcesFolder + "pve-enterprise.sources": "",
			sourcesFolder + "proxmox.sources":        enterprise9 + "\n" + ceph9,
		}, map[string]string{
			sourcesFolder + "proxmox.sources": enterprise9 + disabledBlock + "\n" + ceph9 + disabledBlock + blockBegin + "\n" + own9 + signed + blockEnd,
			sourcesFolder + "ceph.sources":    blockBegin + free9 + blockEnd,
		}},
		"with a subscription": {"9.1.1", "enterprise", both, map[string]string{
			sourcesFolder + "ceph.sources": free9,
		}, map[string]string{
			sourcesFolder + "ceph.sources": free9 + disabledBlock + blockBegin + "\n" + ceph9 + blockEnd, sourcesFolder + "proxmox.sources": "",
		}},
		"with a subscription and without Ceph": {
			"9.1.1", "enterprise", "",
			map[string]string{sourcesFolder + "ceph.sources": free9},
			map[string]string{sourcesFolder + "ceph.sources": free9},
		},
		"PVE 8": {"8.4.1", "no-subscription", both, map[string]string{sourcesFolder + "ceph.list": paid8}, map[string]string{
			sourcesFolder + "ceph.list": blockBegin + "# was: " + paid8 + blockEnd + blockBegin + "\n" + free8 + blockEnd, sourcesFolder + "ceph.sources": "",
		}},
		"PVE 8, an entry with options": {"8.4.1", "no-subscription", both, map[string]string{
			sourcesFolder + "ceph.list": strings.Replace(paid8, "deb ", "deb [arch=amd64 signed-by=/x.gpg] ", 1),
		}, map[string]string{
			sourcesFolder + "ceph.list": blockBegin + "# was: " + strings.Replace(
				paid8, "deb ", "deb [arch=amd64 signed-by=/x.gpg] ", 1,
			) + blockEnd + blockBegin + "\n" + free8 + blockEnd,
		}},
		"PVE 8, the other one commented out": {"8.4.1", "enterprise", both, map[string]string{
			sourcesFolder + "ceph.list": "# " + paid8 + free8,
		}, map[string]string{
			sourcesFolder + "ceph.list": blockBegin + paid8 + "# was: # " + paid8 + blockEnd + blockBegin + "# was: " + free8 + blockEnd,
		}},
	})
}

func TestSwitchingRepositories(t *testing.T) {
	t.Parallel()
	host := newFakeHost(t, hostSpec{files: map[string]string{"usr/bin/ceph-mon": ""}})
	before := host.snapshot(false)

	with := func(r string) spec.Host {
		return preparedHost(func(h *spec.Host) { h.Prep.IOMMU = false; h.Prep.Repositories = r })
	}
	for _, repository := range []string{"no-subscription", "enterprise", "no-subscription"} {
		host.apply(with(repository))
		assert.Empty(t, host.facts(with(repository)).Changes)
	}

	host.apply(with("keep"))

	for _, file := range []string{"proxmox.sources", "pve-enterprise.sources", "ceph.sources"} {
		name := "/etc/apt/sources.list.d/" + file
		assert.Equal(t, before[name], host.snapshot(false)[name], file)
	}
}
