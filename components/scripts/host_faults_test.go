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

// refusedCase is something that the script refuses before it changes anything.
type refusedCase struct {
	machine   hostSpec
	change    func(*fakeHost)
	host      spec.Host
	wantError string
	foreign   bool // the host is another stack's, which only the program checks
}

func (r refusedCase) check(t *testing.T) {
	t.Helper()

	host := newFakeHost(t, r.machine)
	if r.change != nil {
		r.change(host)
	}

	before := host.snapshot(true)
	done := host.run(ActionApply, r.host)
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
			change:    func(host *fakeHost) { host.writeSymlink(zfsFile) },
			host:      preparedHost(),
			wantError: "/etc/modprobe.d/zfs.conf is a symbolic link",
		},
		"a folder for a file": {
			machine:   hostSpec{zfs: true},
			change:    func(host *fakeHost) { require.NoError(host.t, os.Mkdir(host.path(zfsFile), 0o700)) },
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
			change:    func(host *fakeHost) { host.write("var/lib/talos-proxmox/owner", "talos-proxmox/prod\n") },
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
			change:    func(host *fakeHost) { host.writeOrRemove(kernelFile, "-") },
			host:      preparedHost(),
			wantError: "/etc/kernel/cmdline has no kernel command line",
		},
	})
}

func (host *fakeHost) writeSymlink(name string) {
	host.t.Helper()
	host.write("etc/elsewhere.conf", "# mine\n")
	require.NoError(host.t, os.Symlink(host.path("etc/elsewhere.conf"), host.path(name)))
}

// interceptCommand puts a command before the real one on PATH that stops at its nth call: it fails, or kills the script
// before or after its work.
func (host *fakeHost) interceptCommand(command string, nth int, stop string) {
	host.t.Helper()

	actual, err := exec.LookPath(command)
	require.NoError(host.t, err)
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
`, filepath.Join(host.commands, "count "+command), nth, stop, command, actual)
	host.addProgram(command, script)
}

func (host *fakeHost) restoreCommand(command string) (calls int) {
	host.t.Helper()
	_, _ = fmt.Sscan(host.commandFile("count "+command), &calls)
	require.NoError(host.t, os.Remove(filepath.Join(host.commands, command)))

	return calls
}

func (host *fakeHost) commandFile(name string) string {
	content, err := os.ReadFile(filepath.Join(host.commands, name))
	if err != nil {
		return ""
	}

	return string(content)
}

// TestInterruptedRunsAreResumed stops an apply at calls of the commands that write, in three ways.
func TestInterruptedRunsAreResumed(t *testing.T) {
	t.Parallel()

	m := hostSpec{gpu: true, zfs: true, cmdline: zfsRoot, files: map[string]string{zfsFile: "# mine"}}
	h := m.specHost(func(h *spec.Host) { h.Prep.Repositories = "no-subscription" })
	reference := newFakeHost(t, m)
	old := reference.snapshot(false)
	reference.interceptCommand("mv", 1000, "fail")
	reference.interceptCommand("sync", 1000, "fail")
	reference.apply(h)
	moves, syncs := reference.restoreCommand("mv"), reference.restoreCommand("sync")
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
					host := newFakeHost(t, m)
					host.interceptCommand(command, nth, stop)
					r := host.run(ActionApply, h)
					host.restoreCommand(command)

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
func requireWholeFiles(t *testing.T, host *fakeHost, old, applied map[string]string, where string) {
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
			host, h := newFakeHost(t, hostSpec{gpu: true}), preparedHost(withGPU)
			repair := host.breakCommand(command)

			r := host.run(ActionApply, h)
			require.Error(t, r.err)
			assert.Contains(t, r.stderr, "fails as asked")
			assert.Contains(t, r.stderr, "failed, see above; the files are in place and the next run repeats it")

			repair()
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
	host, h := newFakeHost(t, hostSpec{gpu: true, zfs: true}), preparedHost(withGPU)

	small := host.path("etc/modprobe.d")
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("this user may not mount: %v; a failing sync at every write stands in for it", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	require.NoError(t, os.WriteFile(filepath.Join(small, "fill"), []byte(strings.Repeat("x", 4096)), 0o600))

	before := host.snapshot(false)

	r := host.run(ActionApply, h)
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

	host, h := newFakeHost(t, hostSpec{gpu: true, zfs: true}), preparedHost(withGPU)
	if err := syscall.Mount(host.root, host.root, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("this user may not mount: %v; a failing sync at every write stands in for it", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(host.root, syscall.MNT_DETACH) })
	require.NoError(t, syscall.Mount("", host.root, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	before := host.snapshot(true)

	r := host.run(ActionApply, h)
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
	host, h := newFakeHost(t, hostSpec{gpu: true}), preparedHost(withGPU)
	held, release := host.holdCommand("update-initramfs", "-u")
	first := host.newCommand(ActionApply, h)
	require.NoError(t, first.Start())
	held()

	second := host.newCommand(ActionFacts, h)

	var stdout, stderr strings.Builder

	second.Stdout, second.Stderr = &stdout, &stderr
	require.NoError(t, second.Start())
	require.Eventually(
		t, func() bool { return isLockAwaited(t, filepath.Join(host.commands, "talos-proxmox-host.lock")) }, 5*time.Minute,
		5*time.Millisecond,
	)
	release()
	require.NoError(t, second.Wait(), stderr.String())
	assert.Empty(t, parsePrep(t, result{stdout: stdout.String()}).Changes, "the second run waits, then finds no changes")
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

// holdCommand makes a command with this first argument wait; held returns once it waits, and release lets it end.
func (host *fakeHost) holdCommand(command, argument string) (held, release func()) {
	host.t.Helper()

	begun, released := filepath.Join(host.commands, "begun"), filepath.Join(host.commands, "released")
	host.addProgram(command, fmt.Sprintf(
		"#!/usr/bin/env bash\nif [ \"$1\" = %s ]; then : >%q; until [ -e %q ]; do sleep 0.05; done; fi\n", argument, begun, released,
	))

	isHeld := func() bool {
		_, err := os.Stat(begun)

		return err == nil
	}

	return func() { require.Eventually(host.t, isHeld, 5*time.Minute, 5*time.Millisecond) },
		func() { require.NoError(host.t, os.WriteFile(released, nil, 0o600)) }
}

func TestHangupDoesNotInterruptAStep(t *testing.T) {
	t.Parallel()
	host, h := newFakeHost(t, hostSpec{gpu: true}), preparedHost(withGPU)
	held, release := host.holdCommand("proxmox-boot-tool", "refresh")
	cmd := host.newCommand(ActionApply, h)
	require.NoError(t, cmd.Start())
	held()
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP))
	release()
	require.Error(t, cmd.Wait())

	host.addCommand("proxmox-boot-tool")
	assert.Contains(t, host.facts(h).Changes, "boot loader, initramfs")
	host.apply(h)
	assert.Empty(t, host.facts(h).Changes)
}
