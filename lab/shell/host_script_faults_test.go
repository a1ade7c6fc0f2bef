package shell_test

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
	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/spec"
)

// refusedCase is something that the script refuses before it changes anything.
type refusedCase struct {
	machine   hostSpec
	change    func(*scriptHost)
	host      spec.Host
	wantError string
	foreign   bool // the host is another stack's, which only the program checks
}

func (r refusedCase) check(t *testing.T) {
	t.Helper()

	host := newScriptHost(t, r.machine)
	if r.change != nil {
		r.change(host)
	}

	before := host.snapshot(true)
	done := host.run(scripts.ActionApply, r.host)
	require.Error(t, done.err)
	assert.Contains(t, done.stderr, r.wantError)
	assert.Empty(t, done.stdout)
	host.assertUnchanged(before, true, "nothing has changed")

	if !r.foreign {
		assert.NotEmpty(t, host.facts(r.host).Problems, "the facts report it")
	}
}

func TestHostScriptRefuses(t *testing.T) {
	t.Parallel()

	runCases(t, map[string]refusedCase{
		"a GPU that is not there": {
			host: preparedHost(withGPU), wantError: "there is no PCI device at 0000:01:00: lspci -Dnn lists the devices",
		},
		"a block without its end": {
			machine:   hostSpec{zfs: true, files: map[string]string{zfsFile: blockBegin + "options zfs x=1\nmine\n"}},
			host:      preparedHost(),
			wantError: `/etc/modprobe.d/zfs.conf: the line "# talos-proxmox begin`,
		},
		"a symbolic link for a file": {
			machine:   hostSpec{zfs: true},
			change:    func(host *scriptHost) { host.writeSymlink(zfsFile) },
			host:      preparedHost(),
			wantError: "/etc/modprobe.d/zfs.conf is a symbolic link",
		},
		"a folder for a file": {
			machine:   hostSpec{zfs: true},
			change:    func(host *scriptHost) { require.NoError(host.t, os.Mkdir(host.path(zfsFile), 0o700)) },
			host:      preparedHost(),
			wantError: "/etc/modprobe.d/zfs.conf cannot be read as a file",
		},
		"a later file that wins with its limit": {
			machine:   hostSpec{zfs: true, files: map[string]string{"etc/modprobe.d/zz.conf": "options zfs zfs_arc_max=1\n"}},
			host:      preparedHost(),
			wantError: "/etc/modprobe.d/zz.conf sets zfs_arc_max and is read after zfs.conf",
		},
		"a later file that wins with its ids": {
			machine:   hostSpec{gpu: true, files: map[string]string{"etc/modprobe.d/zz.conf": "options vfio-pci ids=1:2\n"}},
			host:      preparedHost(withGPU),
			wantError: "/etc/modprobe.d/zz.conf binds ids to vfio-pci and is read after vfio.conf",
		},
		"repositories of an unknown PVE": {
			machine:   hostSpec{pve: "7.4-3"},
			host:      preparedHost(func(h *spec.Host) { h.Prep.Repositories = "no-subscription" }),
			wantError: `Proxmox VE "7.4-3" has repositories that are not known here`,
		},
		"the host of another stack": {
			change:    func(host *scriptHost) { host.write("var/lib/talos-proxmox/owner", "talos-proxmox/prod\n") },
			host:      preparedHost(),
			wantError: "this host is prepared by stack talos-proxmox/prod",
			foreign:   true,
		},
		"two problems at once, both reported": {
			machine: hostSpec{
				zfs:     true,
				cmdline: zfsRoot + " iommu=off\n",
				files:   map[string]string{"etc/modprobe.d/zz.conf": "options zfs zfs_arc_max=1\n"},
			},
			host:      preparedHost(),
			wantError: "error: /etc/modprobe.d/zz.conf",
		},
	})
}

// TestHostScriptRefusesCommandLines has kernel command lines of GRUB and systemd-boot that cannot be changed safely.
func TestHostScriptRefusesCommandLines(t *testing.T) {
	t.Parallel()

	runCases(t, map[string]refusedCase{
		"an IOMMU that the command line switches off": {
			machine:   hostSpec{cmdline: zfsRoot + " amd_iommu=off\n"},
			host:      preparedHost(),
			wantError: "/etc/kernel/cmdline says amd_iommu=off, which switches off what passthrough needs: take the word out",
		},
		"GRUB's line in two lines": {
			machine:   grubHost("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet \\\n  splash\""),
			host:      preparedHost(),
			wantError: "the last GRUB_CMDLINE_LINUX_DEFAULT is not one assignment in one line",
		},
		"GRUB's line with an open quote": {
			machine: grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="quiet`), host: preparedHost(), wantError: "is not one assignment in one line",
		},
		"GRUB's line with a command": {
			machine:   grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="quiet"; echo hello`),
			host:      preparedHost(),
			wantError: "is not one assignment in one line",
		},
		"systemd-boot with two lines": {
			machine:   hostSpec{cmdline: zfsRoot + "\nquiet\n"},
			host:      preparedHost(),
			wantError: "/etc/kernel/cmdline has more than one line, of which only the first counts",
		},
		"systemd-boot without a line": {
			machine:   hostSpec{cmdline: "\n\n"},
			host:      preparedHost(),
			wantError: "/etc/kernel/cmdline has no kernel command line: write the one that /proc/cmdline shows",
		},
		"systemd-boot without the file": {
			change:    func(host *scriptHost) { host.writeOrRemove(kernelFile, "-") },
			host:      preparedHost(),
			wantError: "/etc/kernel/cmdline has no kernel command line",
		},
	})
}

func (host *scriptHost) writeSymlink(name string) {
	host.t.Helper()
	host.write("etc/elsewhere.conf", "# mine\n")
	require.NoError(host.t, os.Symlink(host.path("etc/elsewhere.conf"), host.path(name)))
}

// interceptProgram puts a program before the real one on PATH that stops at its nth call: it fails, or kills the script
// before or after its work.
func (s *scriptHost) interceptProgram(name string, nth int, stop string) {
	s.t.Helper()

	actual, err := exec.LookPath(name)
	require.NoError(s.t, err)
	s.addProgram(name, fmt.Sprintf(`#!/bin/bash
n=$(cat %[1]q 2>/dev/null || echo 0); n=$((n + 1)); echo "$n" >%[1]q
if [ "$n" -eq %[2]d ]; then
  case %[3]q in
    fail) echo "%[4]s: No space left on device" >&2; exit 1 ;;
    before) kill -KILL 0 ;;
    after) %[5]q "$@"; kill -KILL 0 ;;
  esac
fi
exec %[5]q "$@"
`, s.path("tmp/calls of "+name), nth, stop, name, actual))
}

// removeProgram returns how often the program was called.
func (s *scriptHost) removeProgram(name string) (calls int) {
	s.t.Helper()
	_, _ = fmt.Sscan(s.read("tmp/calls of "+name), &calls)
	require.NoError(s.t, os.Remove(s.path("usr/local/sbin/"+name)))

	return calls
}

// TestInterruptedRunsAreResumed stops an apply at calls of the commands that write, in three ways.
func TestInterruptedRunsAreResumed(t *testing.T) {
	t.Parallel()

	m := hostSpec{gpu: true, zfs: true, cmdline: zfsRoot, files: map[string]string{zfsFile: "# mine"}}
	h := m.specHost(func(h *spec.Host) { h.Prep.Repositories = "no-subscription" })
	reference := newScriptHost(t, m)
	old := reference.snapshot(false)
	reference.interceptProgram("mv", 1000, "fail")
	reference.interceptProgram("sync", 1000, "fail")
	reference.apply(h)
	moves, syncs := reference.removeProgram("mv"), reference.removeProgram("sync")
	require.Greater(t, moves, 15, "calls are counted")

	applied := reference.snapshot(false)

	stops := []string{"fail", "before", "after"}
	for _, stop := range stops {
		for command, calls := range map[string]int{"mv": moves, "sync": syncs} {
			if command == "sync" && stop != "fail" {
				continue // a kill between two moves is a kill at a move
			}

			t.Run(command+" "+stop, func(t *testing.T) {
				t.Parallel()
				// Some calls for each way to stop, beginning at different ones.
				for nth := 1 + 2*slices.Index(stops, stop); nth <= calls; nth += map[string]int{"mv": 10, "sync": 22}[command] {
					host := newScriptHost(t, m)
					host.interceptProgram(command, nth, stop)
					r := host.run(scripts.ActionApply, h)
					host.removeProgram(command)

					where := fmt.Sprintf("at call %d", nth)
					if r.err == nil {
						require.Equal(t, "sync", command, where+": only a folder's sync may fail")
					}

					requireWholeFiles(t, host, old, applied, where)

					if nth%4 == 3 { // half of them are restored at once, the others completed
						host.restore(h)
						host.assertUnchanged(old, false, where+": removed")

						continue
					}

					host.apply(h)
					assert.Empty(t, host.facts(h).Changes, where)
					assert.Contains(t, host.changingCalls(), "update-initramfs -u -k all", where)
					requireWholeFiles(t, host, applied, applied, where)
					host.restore(h)
					host.assertUnchanged(old, false, where+": completed and removed")
				}
			})
		}
	}
}

// requireWholeFiles expects every managed file as it was or completely applied.
func requireWholeFiles(t *testing.T, host *scriptHost, old, applied map[string]string, where string) {
	t.Helper()

	now := host.snapshot(false)
	for _, file := range []string{
		kernelFile, vfioFile, zfsFile, "etc/modules-load.d/vfio.conf", "etc/modprobe.d/blacklist-gpu.conf",
		"etc/apt/sources.list.d/ceph.sources", "etc/apt/sources.list.d/proxmox.sources",
	} {
		content := now["/"+file]
		require.True(t, content == old["/"+file] || content == applied["/"+file], "%s: %s is %q", where, file, content)
	}
}

func TestFailedBootUpdatesAreRepeated(t *testing.T) {
	t.Parallel()

	for _, command := range []string{"proxmox-boot-tool", "update-initramfs"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			host, h := newScriptHost(t, hostSpec{gpu: true}), preparedHost(withGPU)
			host.setBroken(command, true)

			r := host.run(scripts.ActionApply, h)
			require.Error(t, r.err)
			assert.Contains(t, r.stderr, "fails as asked")
			assert.Contains(t, r.stderr, "failed, see above; the files are in place and the next run repeats it")

			host.setBroken(command, false)
			assert.NotEmpty(t, host.facts(h).Changes)
			host.apply(h)
			calls := host.changingCalls()
			assert.Equal(t, "update-initramfs -u -k all", calls[len(calls)-1])
			assert.Contains(t, calls, "proxmox-boot-tool refresh")
			assert.Empty(t, host.facts(h).Changes)
		})
	}
}

// TestFullDisk writes to a file system of one page.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	host, h := newScriptHost(t, hostSpec{gpu: true, zfs: true}), preparedHost(withGPU)

	small := host.path("etc/modprobe.d")
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("this user may not mount: %v; a failing sync at every write stands in for it", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	require.NoError(t, os.WriteFile(filepath.Join(small, "fill"), []byte(strings.Repeat("x", 4096)), 0o600))

	before := host.snapshot(false)

	r := host.run(scripts.ActionApply, h)
	require.Error(t, r.err)
	assert.Contains(t, r.stderr, "is the file system read-only or full? Nothing of /etc/modprobe.d/")

	after := host.snapshot(false)
	for file := range before {
		assert.Equal(t, before[file], after[file], file)
	}

	require.NoError(t, os.Remove(filepath.Join(small, "fill")))
	require.NoError(t, syscall.Mount("tmpfs", small, "tmpfs", syscall.MS_REMOUNT, "size=1m"))
	host.apply(h)
	assert.Empty(t, host.facts(h).Changes)
}

func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()

	host, h := newScriptHost(t, hostSpec{gpu: true, zfs: true}), preparedHost(withGPU)
	if err := syscall.Mount(host.root, host.root, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("this user may not mount: %v; a failing sync at every write stands in for it", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(host.root, syscall.MNT_DETACH) })
	require.NoError(t, syscall.Mount("", host.root, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	before := host.snapshot(true)

	r := host.run(scripts.ActionApply, h)
	require.Error(t, r.err)
	assert.Contains(t, r.stderr, "error: unable to")
	assert.Contains(t, r.stderr, "is the file system read-only")
	assert.Len(t, strings.Split(strings.TrimSpace(errorsOf(r.stderr)), "\n"), 1, "one error")
	host.assertUnchanged(before, true, "nothing is changed")
	host.facts(h)
}

func errorsOf(stderr string) string {
	var lines strings.Builder

	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "error: ") {
			lines.WriteString(line)
		}
	}

	return lines.String()
}

func TestRunsOnAHostAreSerialized(t *testing.T) {
	t.Parallel()
	host, h := newScriptHost(t, hostSpec{gpu: true}), preparedHost(withGPU)
	held := host.holdCommand("update-initramfs")
	first := host.begin(scripts.ActionApply, h)
	<-held.begun

	second := host.begin(scripts.ActionFacts, h)
	require.Eventually(
		t, func() bool { return isLockAwaited(t, filepath.Join(host.locks, "talos-proxmox-host.lock")) }, 5*time.Minute,
		5*time.Millisecond,
	)
	close(held.resume)
	require.NoError(t, second.Wait(), second.stderr.String())
	assert.Empty(t, parsePrep(t, second.stdout.String()).Changes, "the second run waits, then finds no changes")
	require.NoError(t, first.Wait())
}

// isLockAwaited reports whether a process waits for the lock of a file, as the kernel lists it: "2: -> FLOCK  ADVISORY
// WRITE 4711 fe:00:1234 0 EOF".
func isLockAwaited(t *testing.T, file string) bool {
	t.Helper()

	info, err := os.Stat(file)
	require.NoError(t, err)

	stat, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)

	locks, err := os.ReadFile("/proc/locks")
	require.NoError(t, err)

	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, " -> ") && strings.Contains(line, fmt.Sprintf(":%d ", stat.Ino)) {
			return true
		}
	}

	return false
}

func TestHangupDoesNotInterruptAStep(t *testing.T) {
	t.Parallel()
	host, h := newScriptHost(t, hostSpec{gpu: true}), preparedHost(withGPU)
	held := host.holdCommand("proxmox-boot-tool refresh")
	r := host.begin(scripts.ActionApply, h)
	<-held.begun
	require.NoError(t, r.Signal(ssh.SIGHUP))
	require.Error(t, r.Wait())

	assert.Contains(t, host.facts(h).Changes, "boot loader, initramfs")
	host.apply(h)
	assert.Empty(t, host.facts(h).Changes)
}
