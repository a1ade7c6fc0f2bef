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
	blocked       = "# talos-proxmox begin: managed, edits between these lines are undone\n"
	blockEnd      = "# talos-proxmox end\n"
	switchedOff   = blocked + "Enabled: no\n" + blockEnd
	sourcesFolder = "etc/apt/sources.list.d/"
	signed        = "Signed-By: /usr/share/keyrings/proxmox-archive-keyring.gpg\n"
	own9          = "Types: deb\nURIs: http://download.proxmox.com/debian/pve\nSuites: trixie\nComponents: pve-no-subscription\n"
)

func TestHandEdits(t *testing.T) {
	t.Parallel()

	zfsBlock := blocked + "options zfs zfs_arc_max=10307502080\n# talos-proxmox end\n"
	for name, test := range map[string]struct {
		before  string // of zfs.conf; "-" = not there
		edit    string // ditto, after the first apply
		drift   bool
		applied string
		left    string // after removal; "-" = not there
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
			tr, h := newTree(t, machine{zfs: true}), hostOf()
			tr.edit(zfsFile, test.before)
			tr.apply(h)
			tr.edit(zfsFile, test.edit)

			planned := tr.facts(h)
			assert.Equal(t, test.drift, len(planned.Changes) > 0, planned.Changes)

			done := tr.apply(h)
			assert.Equal(t, planned.Changes, done.Applied)
			assert.Equal(t, test.applied, tr.read(zfsFile))
			assert.Empty(t, tr.facts(h).Changes)

			tr.restore(h)

			if test.left == "-" {
				assert.NoFileExists(t, tr.path(zfsFile))
			} else {
				assert.Equal(t, test.left, tr.read(zfsFile))
			}
		})
	}
}

// edit writes a file; "-" removes it.
func (tr *tree) edit(name, content string) {
	tr.t.Helper()

	if content == "-" {
		require.NoError(tr.t, os.RemoveAll(tr.path(name)))

		return
	}

	tr.write(name, content)
}

func TestModeAndOwnerOfFilesStay(t *testing.T) {
	t.Parallel()
	tr := newTree(t, machine{zfs: true, gpu: true, files: map[string]string{zfsFile: "# mine\n"}})
	require.NoError(t, os.Chmod(tr.path(zfsFile), 0o640))
	require.NoError(t, os.Chmod(tr.path(kernelFile), 0o600))

	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(tr.path(zfsFile), 1234, 1234))
	}

	before := tr.snapshot(false)
	tr.apply(hostOf(withGPU))

	for _, file := range []string{zfsFile, kernelFile} {
		now, was := tr.snapshot(false)["/"+file], before["/"+file]
		assert.Equal(t, strings.Join(strings.Fields(was)[:2], " "), strings.Join(strings.Fields(now)[:2], " "), file)
	}

	info, err := os.Stat(tr.path(vfioFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode())
	tr.restore(hostOf(withGPU))
	tr.unchanged(before, false, "removed")
}

func TestALiveSettingChangedByHandIsSetAgain(t *testing.T) {
	t.Parallel()
	tr := newTree(t, machine{zfs: true})
	tr.write(arcMax, "4294967296\n")
	tr.apply(hostOf())
	tr.write(arcMax, "1\n")

	assert.Equal(t, []string{"/sys/module/zfs/parameters/zfs_arc_max"}, tr.facts(hostOf()).Changes)
	tr.apply(hostOf())
	assert.Equal(t, "10307502080\n", tr.read(arcMax))
	calls := len(tr.calls())
	tr.restore(hostOf())
	assert.Equal(t, "4294967296\n", tr.read(arcMax), "as it was before the first run")
	assert.Len(t, tr.calls(), calls+2, "the removal of files is followed up, too")
}

func TestRepositories(t *testing.T) {
	t.Parallel()

	each(t, map[string]repositories{
		"PVE 9 without a subscription": {"9.1.1", "no-subscription", "", nil, map[string]string{
			sourcesFolder + "pve-enterprise.sources": enterprise9 + switchedOff,
			sourcesFolder + "ceph.sources":           ceph9 + switchedOff,
			sourcesFolder + "proxmox.sources":        blocked + own9 + signed + blockEnd,
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
			sourcesFolder + "mine.sources": own9, sourcesFolder + "proxmox.sources": "", sourcesFolder + "pve-enterprise.sources": enterprise9 + switchedOff,
		}},
		"PVE 9 whose entry is switched off is switched on": {"9.1.1", "no-subscription", "", map[string]string{
			sourcesFolder + "mine.sources": own9 + "Enabled: false\n",
		}, map[string]string{
			sourcesFolder + "mine.sources":    own9 + blocked + "Enabled: yes\n# was: Enabled: false\n" + blockEnd,
			sourcesFolder + "proxmox.sources": "",
		}},
		"PVE 9, two entries in one file, the last without a newline": {"9.1.1", "no-subscription", "", map[string]string{
			sourcesFolder + "pve-enterprise.sources": "# mine\n" + own9 + "\n" + strings.TrimSuffix(enterprise9, "\n"),
		}, map[string]string{
			sourcesFolder + "pve-enterprise.sources": "# mine\n" + own9 + "\n" + enterprise9 + switchedOff, sourcesFolder + "proxmox.sources": "",
		}},
		"PVE 9, an entry that is off already": {"9.1.1", "no-subscription", "", map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + "Enabled: no\n",
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + "Enabled: no\n",
		}},
		"PVE 9 back to the enterprise repository": {"9.1.1", "enterprise", "", map[string]string{
			sourcesFolder + "proxmox.sources": own9, sourcesFolder + "pve-enterprise.sources": enterprise9 + "Enabled: no\n",
		}, map[string]string{
			sourcesFolder + "proxmox.sources":        own9 + switchedOff,
			sourcesFolder + "pve-enterprise.sources": enterprise9 + blocked + "Enabled: yes\n# was: Enabled: no\n" + blockEnd,
		}},
		"PVE 8 without a subscription": {"8.4.1", "no-subscription", "", nil, map[string]string{
			sourcesFolder + "pve-enterprise.list": blocked + "# was: " + enterprise8 + blockEnd,
			sourcesFolder + "pve-no-subscription.list": blocked +
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
			sourcesFolder + "pve-enterprise.list": blocked + enterprise8 + "# was: # " + enterprise8 + blockEnd,
		}},
	})
}

// repositories is what becomes of a host's repositories, with these daemons of Ceph.
type repositories struct {
	pve, wish, ceph string
	files           map[string]string
	want            map[string]string
}

func (c repositories) check(t *testing.T) {
	t.Helper()

	tr := newTree(t, machine{pve: c.pve, files: c.files})
	for daemon := range strings.FieldsSeq(c.ceph) {
		tr.write("usr/bin/"+daemon, "")
	}

	before := tr.snapshot(false)
	h := hostOf(func(h *spec.Host) { h.Prep.IOMMU = false; h.Prep.Repositories = c.wish })
	tr.apply(h)

	for file, content := range c.want {
		assert.Equal(t, content, tr.read(file), file)
	}

	assert.Empty(t, tr.facts(h).Changes)
	assert.Empty(t, tr.calls(), "repositories need neither a reboot nor an initramfs")
	tr.restore(h)
	tr.unchanged(before, false, "removed")
}

// TestRepositoriesOfCeph keeps a host that has Ceph supplied with its updates: the same release and suite, from the
// repository of the other kind.
func TestRepositoriesOfCeph(t *testing.T) {
	t.Parallel()

	const (
		both  = "ceph-mon ceph-osd"
		paid8 = "deb https://enterprise.proxmox.com/debian/ceph-reef bookworm enterprise\n"
		free8 = "deb http://download.proxmox.com/debian/ceph-reef bookworm no-subscription\n"
		free9 = "Types: deb\nURIs: http://download.proxmox.com/debian/ceph-squid\nSuites: trixie\nComponents: no-subscription\n" + signed
	)

	test9 := strings.ReplaceAll(strings.ReplaceAll(free9, "no-subscription", "test"), "squid", "tentacle")
	each(t, map[string]repositories{
		"the enterprise entry is replaced": {
			"9.1.1", "no-subscription", both, nil,
			map[string]string{sourcesFolder + "ceph.sources": ceph9 + switchedOff + blocked + "\n" + free9 + blockEnd},
		},
		"where only its disks are here": {
			"9.1.1", "no-subscription", "ceph-osd", nil,
			map[string]string{sourcesFolder + "ceph.sources": ceph9 + switchedOff + blocked + "\n" + free9 + blockEnd},
		},
		"without Ceph nothing needs it": {
			"9.1.1", "no-subscription", "", nil, map[string]string{sourcesFolder + "ceph.sources": ceph9 + switchedOff},
		},
		"an entry that is off is not needed": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + "Enabled: no\n",
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + "Enabled: no\n",
		}},
		"the other entry is there": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "mine.sources": free9,
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + switchedOff, sourcesFolder + "mine.sources": free9,
		}},
		"the other entry is there and off": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "mine.sources": free9 + "Enabled: no\n",
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + switchedOff,
			sourcesFolder + "mine.sources": free9 + blocked + "Enabled: yes\n# was: Enabled: no\n" + blockEnd,
		}},
		"another release's entry is none, and a test's stays": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "mine.sources": strings.Replace(free9, "squid", "tentacle", 1), sourcesFolder + "test.sources": test9,
		}, map[string]string{
			sourcesFolder + "ceph.sources": ceph9 + switchedOff + blocked + "\n" + free9 + blockEnd, sourcesFolder + "test.sources": test9,
		}},
		"everything in one file": {"9.1.1", "no-subscription", both, map[string]string{
			sourcesFolder + "ceph.sources":           "",
			sourcesFolder + "pve-enterprise.sources": "",
			sourcesFolder + "proxmox.sources":        enterprise9 + "\n" + ceph9,
		}, map[string]string{
			sourcesFolder + "proxmox.sources": enterprise9 + switchedOff + "\n" + ceph9 + switchedOff + blocked + "\n" + own9 + signed + blockEnd,
			sourcesFolder + "ceph.sources":    blocked + free9 + blockEnd,
		}},
		"with a subscription": {"9.1.1", "enterprise", both, map[string]string{
			sourcesFolder + "ceph.sources": free9,
		}, map[string]string{
			sourcesFolder + "ceph.sources": free9 + switchedOff + blocked + "\n" + ceph9 + blockEnd, sourcesFolder + "proxmox.sources": "",
		}},
		"with a subscription and without Ceph": {
			"9.1.1", "enterprise", "",
			map[string]string{sourcesFolder + "ceph.sources": free9},
			map[string]string{sourcesFolder + "ceph.sources": free9},
		},
		"PVE 8": {"8.4.1", "no-subscription", both, map[string]string{sourcesFolder + "ceph.list": paid8}, map[string]string{
			sourcesFolder + "ceph.list": blocked + "# was: " + paid8 + blockEnd + blocked + "\n" + free8 + blockEnd, sourcesFolder + "ceph.sources": "",
		}},
		"PVE 8, an entry with options": {"8.4.1", "no-subscription", both, map[string]string{
			sourcesFolder + "ceph.list": strings.Replace(paid8, "deb ", "deb [arch=amd64 signed-by=/x.gpg] ", 1),
		}, map[string]string{
			sourcesFolder + "ceph.list": blocked + "# was: " + strings.Replace(
				paid8, "deb ", "deb [arch=amd64 signed-by=/x.gpg] ", 1,
			) + blockEnd + blocked + "\n" + free8 + blockEnd,
		}},
		"PVE 8, the other one commented out": {"8.4.1", "enterprise", both, map[string]string{
			sourcesFolder + "ceph.list": "# " + paid8 + free8,
		}, map[string]string{
			sourcesFolder + "ceph.list": blocked + paid8 + "# was: # " + paid8 + blockEnd + blocked + "# was: " + free8 + blockEnd,
		}},
	})
}

func TestSwitchingBetweenTheRepositories(t *testing.T) {
	t.Parallel()
	tr := newTree(t, machine{files: map[string]string{"usr/bin/ceph-mon": ""}})
	before := tr.snapshot(false)

	with := func(r string) spec.Host {
		return hostOf(func(h *spec.Host) { h.Prep.IOMMU = false; h.Prep.Repositories = r })
	}
	for _, repository := range []string{"no-subscription", "enterprise", "no-subscription"} {
		tr.apply(with(repository))
		assert.Empty(t, tr.facts(with(repository)).Changes)
	}

	tr.apply(with("keep"))

	for _, file := range []string{"proxmox.sources", "pve-enterprise.sources", "ceph.sources"} {
		name := "/etc/apt/sources.list.d/" + file
		assert.Equal(t, before[name], tr.snapshot(false)[name], file)
	}
}
