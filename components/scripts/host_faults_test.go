package scripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

// refusal is what the script refuses before it changes anything.
type refusal struct {
	machine machine
	change  func(*tree)
	host    spec.Host
	says    string
	owned   bool // by another stack, which the facts leave to the program
}

func (r refusal) check(t *testing.T) {
	t.Helper()

	tr := newTree(t, r.machine)
	if r.change != nil {
		r.change(tr)
	}

	before := tr.snapshot(true)
	done := tr.run(ActionApply, r.host)
	require.Error(t, done.err)
	assert.Contains(t, done.stderr, r.says)
	assert.Empty(t, done.stdout)
	tr.unchanged(before, true, "nothing is half done")

	if !r.owned {
		assert.NotEmpty(t, tr.facts(r.host).Problems, "the facts say so before")
	}
}

func TestHostScriptRefuses(t *testing.T) {
	t.Parallel()

	each(t, map[string]refusal{
		"a GPU that is not there": {
			host: hostOf(withGPU), says: "there is no PCI device at 0000:01:00: lspci -Dnn -d 10de: lists the NVIDIA devices",
		},
		"a block whose end is gone": {
			machine: machine{zfs: true, files: map[string]string{zfsFile: blocked + "options zfs x=1\nmine\n"}},
			host:    hostOf(),
			says:    `/etc/modprobe.d/zfs.conf: the line "# talos-proxmox begin`,
		},
		"a symbolic link for a file": {
			machine: machine{zfs: true},
			change:  func(tr *tree) { tr.link(zfsFile) },
			host:    hostOf(),
			says:    "/etc/modprobe.d/zfs.conf is a symbolic link",
		},
		"a folder for a file": {
			machine: machine{zfs: true},
			change:  func(tr *tree) { require.NoError(tr.t, os.Mkdir(tr.path(zfsFile), 0o700)) },
			host:    hostOf(),
			says:    "/etc/modprobe.d/zfs.conf cannot be read as a file",
		},
		"a later file that wins with its limit": {
			machine: machine{zfs: true, files: map[string]string{"etc/modprobe.d/zz.conf": "options zfs zfs_arc_max=1\n"}},
			host:    hostOf(),
			says:    "/etc/modprobe.d/zz.conf sets zfs_arc_max and is read after zfs.conf",
		},
		"a later file that wins with its ids": {
			machine: machine{gpu: true, files: map[string]string{"etc/modprobe.d/zz.conf": "options vfio-pci ids=1:2\n"}},
			host:    hostOf(withGPU),
			says:    "/etc/modprobe.d/zz.conf binds ids to vfio-pci and is read after vfio.conf",
		},
		"repositories of an unknown PVE": {
			machine: machine{pve: "7.4-3"},
			host:    hostOf(func(h *spec.Host) { h.Prep.Repositories = "no-subscription" }),
			says:    `Proxmox VE "7.4-3" has repositories that are not known here`,
		},
		"the host of another stack": {
			change: func(tr *tree) { tr.write("var/lib/talos-proxmox/owner", "talos-proxmox/prod\n") },
			host:   hostOf(),
			says:   "this host is prepared by stack talos-proxmox/prod",
			owned:  true,
		},
		"two problems at once, both told": {
			machine: machine{
				zfs:     true,
				cmdline: zfsRoot + " iommu=off\n",
				files:   map[string]string{"etc/modprobe.d/zz.conf": "options zfs zfs_arc_max=1\n"},
			},
			host: hostOf(),
			says: "error: /etc/modprobe.d/zz.conf",
		},
	})
}

// TestHostScriptRefusesCommandLines: those of GRUB and systemd-boot that it cannot change safely.
func TestHostScriptRefusesCommandLines(t *testing.T) {
	t.Parallel()

	each(t, map[string]refusal{
		"an IOMMU that the command line switches off": {
			machine: machine{cmdline: zfsRoot + " amd_iommu=off\n"},
			host:    hostOf(),
			says:    "/etc/kernel/cmdline says amd_iommu=off, which switches off what passthrough needs: take the word out",
		},
		"GRUB's line in two lines": {
			machine: grub("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet \\\n  splash\""),
			host:    hostOf(),
			says:    "the last GRUB_CMDLINE_LINUX_DEFAULT is not one assignment in one line",
		},
		"GRUB's line with an open quote": {
			machine: grub(`GRUB_CMDLINE_LINUX_DEFAULT="quiet`), host: hostOf(), says: "is not one assignment in one line",
		},
		"GRUB's line with a command": {
			machine: grub(`GRUB_CMDLINE_LINUX_DEFAULT="quiet"; echo hello`),
			host:    hostOf(),
			says:    "is not one assignment in one line",
		},
		"systemd-boot with two lines": {
			machine: machine{cmdline: zfsRoot + "\nquiet\n"},
			host:    hostOf(),
			says:    "/etc/kernel/cmdline has more than one line, of which only the first counts",
		},
		"systemd-boot without a line": {
			machine: machine{cmdline: "\n\n"},
			host:    hostOf(),
			says:    "/etc/kernel/cmdline has no kernel command line: write the one that /proc/cmdline shows",
		},
		"systemd-boot without the file": {
			change: func(tr *tree) { tr.edit(kernelFile, "-") },
			host:   hostOf(),
			says:   "/etc/kernel/cmdline has no kernel command line",
		},
	})
}

func (tr *tree) link(name string) {
	tr.t.Helper()
	tr.write("etc/elsewhere.conf", "# mine\n")
	require.NoError(tr.t, os.Symlink(tr.path("etc/elsewhere.conf"), tr.path(name)))
}

// shadow puts a command before the real one on PATH that stops at its nth call: it fails, or kills the script outright,
// before or after it did its work.
func (tr *tree) shadow(command string, nth int, stop string) {
	tr.t.Helper()

	actual, err := exec.LookPath(command)
	require.NoError(tr.t, err)
	script := fmt.Sprintf(`#!/usr/bin/env bash
n=$(cat %[1]q 2>/dev/null || echo 0); n=$((n + 1)); echo "$n" >%[1]q
if [ "$n" -eq %[2]d ]; then
  case %[3]q in
    fail) echo "%[4]s: No space left on device" >&2; exit 1 ;;
    before) kill -KILL 0 ;;
    after) %[5]q "$@"; kill -KILL 0 ;;
  esac
fi
exec %[5]q "$@"
`, filepath.Join(tr.fake, "count "+command), nth, stop, command, actual)
	tr.program(command, script)
}

func (tr *tree) unshadow(command string) (calls int) {
	tr.t.Helper()
	_, _ = fmt.Sscan(tr.said("count "+command), &calls)
	require.NoError(tr.t, os.Remove(filepath.Join(tr.fake, command)))

	return calls
}

func (tr *tree) said(name string) string {
	content, err := os.ReadFile(filepath.Join(tr.fake, name))
	if err != nil {
		return ""
	}

	return string(content)
}

// TestBrokenOffRunsLeaveWholeFilesAndAreCompleted stops an apply at every call of the commands that write, in three
// ways.
func TestBrokenOffRunsLeaveWholeFilesAndAreCompleted(t *testing.T) {
	t.Parallel()

	m := machine{gpu: true, zfs: true, cmdline: zfsRoot, files: map[string]string{zfsFile: "# mine"}}
	h := m.host(func(h *spec.Host) { h.Prep.Repositories = "no-subscription" })
	reference := newTree(t, m)
	old := reference.snapshot(false)
	reference.shadow("mv", 1000, "fail")
	reference.shadow("sync", 1000, "fail")
	reference.apply(h)
	moves, syncs := reference.unshadow("mv"), reference.unshadow("sync")
	require.Greater(t, moves, 15, "the counting works")

	wanted := reference.snapshot(false)

	stops := []string{"fail", "before", "after"}
	for _, stop := range stops {
		for command, calls := range map[string]int{"mv": moves, "sync": syncs} {
			if command == "sync" && stop != "fail" {
				continue // a kill between two moves is a kill at a move
			}

			t.Run(command+" "+stop, func(t *testing.T) {
				t.Parallel()
				// Some places in each way; the ways begin at different ones.
				for nth := 1 + 2*slices.Index(stops, stop); nth <= calls; nth += map[string]int{"mv": 6, "sync": 14}[command] {
					tr := newTree(t, m)
					tr.shadow(command, nth, stop)
					r := tr.run(ActionApply, h)
					tr.unshadow(command)

					where := fmt.Sprintf("at call %d", nth)
					if r.err == nil {
						require.Equal(t, "sync", command, where+": only a folder's sync may fail")
					}

					requireWhole(t, tr, old, wanted, where)

					if nth%4 == 3 { // half of them are removed right away, the others completed
						tr.restore(h)
						tr.unchanged(old, false, where+": removed")

						continue
					}

					tr.apply(h)
					assert.Empty(t, tr.facts(h).Changes, where)
					assert.Contains(t, tr.calls(), "update-initramfs -u -k all", where)
					requireWhole(t, tr, wanted, wanted, where)
					tr.restore(h)
					tr.unchanged(old, false, where+": completed and removed")
				}
			})
		}
	}
}

// requireWhole checks that every managed file is as before or as wanted.
func requireWhole(t *testing.T, tr *tree, old, wanted map[string]string, where string) {
	t.Helper()

	now := tr.snapshot(false)
	for _, file := range []string{
		kernelFile, vfioFile, zfsFile, "etc/modules-load.d/vfio.conf", "etc/modprobe.d/blacklist-gpu.conf",
		"etc/apt/sources.list.d/ceph.sources", "etc/apt/sources.list.d/proxmox.sources",
	} {
		content := now["/"+file]
		require.True(t, content == old["/"+file] || content == wanted["/"+file], "%s: %s is %q", where, file, content)
	}
}

func TestFailingFollowUpsAreRepeated(t *testing.T) {
	t.Parallel()

	for _, command := range []string{"proxmox-boot-tool", "update-initramfs"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			tr, h := newTree(t, machine{gpu: true}), hostOf(withGPU)
			free := tr.fails(command)

			r := tr.run(ActionApply, h)
			require.Error(t, r.err)
			assert.Contains(t, r.stderr, "fails as asked")
			assert.Contains(t, r.stderr, "failed, see above; the files are in place and the next run repeats it")

			free()
			assert.NotEmpty(t, tr.facts(h).Changes)
			tr.apply(h)
			calls := tr.calls()
			assert.Equal(t, "update-initramfs -u -k all", calls[len(calls)-1])
			assert.Contains(t, calls, "proxmox-boot-tool refresh")
			assert.Empty(t, tr.facts(h).Changes)
		})
	}
}

// TestAFullDisk writes to a file system of a few pages.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	tr, h := newTree(t, machine{gpu: true, zfs: true}), hostOf(withGPU)

	small := tr.path("etc/modprobe.d")
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("this user may not mount: %v; a failing sync at every write stands in for it", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	require.NoError(t, os.WriteFile(filepath.Join(small, "fill"), []byte(strings.Repeat("x", 4096)), 0o600))

	before := tr.snapshot(false)

	r := tr.run(ActionApply, h)
	require.Error(t, r.err)
	assert.Contains(t, r.stderr, "is the file system read-only or full? Nothing of /etc/modprobe.d/")

	after := tr.snapshot(false)
	for file := range before {
		assert.Equal(t, before[file], after[file], file)
	}

	require.NoError(t, os.Remove(filepath.Join(small, "fill")))
	require.NoError(t, syscall.Mount("tmpfs", small, "tmpfs", syscall.MS_REMOUNT, "size=1m"))
	tr.apply(h)
	assert.Empty(t, tr.facts(h).Changes)
}

func TestAReadOnlyFileSystem(t *testing.T) {
	t.Parallel()

	tr, h := newTree(t, machine{gpu: true, zfs: true}), hostOf(withGPU)
	if err := syscall.Mount(tr.root, tr.root, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("this user may not mount: %v; a failing sync at every write stands in for it", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(tr.root, syscall.MNT_DETACH) })
	require.NoError(t, syscall.Mount("", tr.root, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	before := tr.snapshot(true)

	r := tr.run(ActionApply, h)
	require.Error(t, r.err)
	assert.Contains(t, r.stderr, "error: unable to")
	assert.Contains(t, r.stderr, "is the file system read-only")
	assert.Len(t, strings.Split(strings.TrimSpace(errorsOf(r.stderr)), "\n"), 1, "one error")
	tr.unchanged(before, true, "nothing is changed")
	tr.facts(h)
}

func errorsOf(stderr string) string {
	var found strings.Builder

	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "error: ") {
			found.WriteString(line)
		}
	}

	return found.String()
}

func TestRunsOnOneHostGoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	tr, h := newTree(t, machine{gpu: true}), hostOf(withGPU)
	held, release := tr.hold("update-initramfs", "-u")
	first := tr.exec(ActionApply, h)
	require.NoError(t, first.Start())
	held()

	second := tr.exec(ActionFacts, h)

	var stdout, stderr strings.Builder

	second.Stdout, second.Stderr = &stdout, &stderr
	require.NoError(t, second.Start())
	require.Eventually(
		t, func() bool { return waitedFor(t, filepath.Join(tr.fake, "talos-proxmox-host.lock")) }, 5*time.Minute,
		5*time.Millisecond,
	)
	release()
	require.NoError(t, second.Wait(), stderr.String())
	assert.Empty(t, prepOf(t, result{stdout: stdout.String()}).Changes, "the second run waits and finds everything done")
	require.NoError(t, first.Wait())
}

// waitedFor says whether someone waits for the lock of a file, as the kernel lists it: "2: -> FLOCK  ADVISORY  WRITE
// 4711 fe:00:1234 0 EOF".
func waitedFor(t *testing.T, file string) bool {
	t.Helper()

	info, err := os.Stat(file)
	require.NoError(t, err)

	about, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)

	locks, err := os.ReadFile("/proc/locks")
	require.NoError(t, err)

	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, " -> ") && strings.Contains(line, fmt.Sprintf(":%d ", about.Ino)) {
			return true
		}
	}

	return false
}

// hold has a command wait where its first argument is so; held returns once it does, and release has it end.
func (tr *tree) hold(command, argument string) (held, release func()) {
	tr.t.Helper()

	begun, released := filepath.Join(tr.fake, "begun"), filepath.Join(tr.fake, "released")
	tr.program(command, fmt.Sprintf(
		"#!/usr/bin/env bash\nif [ \"$1\" = %s ]; then : >%q; until [ -e %q ]; do sleep 0.05; done; fi\n", argument, begun, released,
	))

	there := func() bool {
		_, err := os.Stat(begun)

		return err == nil
	}

	return func() { require.Eventually(tr.t, there, 5*time.Minute, 5*time.Millisecond) },
		func() { require.NoError(tr.t, os.WriteFile(released, nil, 0o600)) }
}

func TestAHangupEndsNothingHalfWay(t *testing.T) {
	t.Parallel()
	tr, h := newTree(t, machine{gpu: true}), hostOf(withGPU)
	held, release := tr.hold("proxmox-boot-tool", "refresh")
	cmd := tr.exec(ActionApply, h)
	require.NoError(t, cmd.Start())
	held()
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP))
	release()
	require.Error(t, cmd.Wait())

	tr.command("proxmox-boot-tool")
	assert.Contains(t, tr.facts(h).Changes, "boot loader, initramfs")
	tr.apply(h)
	assert.Empty(t, tr.facts(h).Changes)
}
