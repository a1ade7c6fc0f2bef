package shell_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/scripttest"
	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
)

// scriptHost is a host on which this computer's bash runs the host script. Tests change its files, and what its
// commands print.
type scriptHost struct {
	*host

	t     *testing.T
	locks string // the folder for /run/lock

	mu      sync.Mutex
	calls   []string
	outputs map[string]string // by the first words of a call
	broken  map[string]bool
	hold    heldCommand
}

// heldCommand is a command that waits at its beginning.
type heldCommand struct {
	call          string
	begun, resume chan struct{}
}

// hostSpec describes a host.
type hostSpec struct {
	intel   bool
	kernel  string // default 6.17.2-1-pve
	pve     string // default 9.1.1
	loader  string // systemd-boot (default), grub or grub-by-tool (GRUB that proxmox-boot-tool manages)
	secure  bool   // Secure Boot
	bios    bool   // no EFI
	zfs     bool
	memory  int    // GiB; default 96
	cmdline string // the boot loader's file; default a typical one
	gpu     bool   // an RTX 4000 SFF Ada at 01:00
	files   map[string]string
}

const (
	grubFile   = "etc/default/grub"
	kernelFile = "etc/kernel/cmdline"
	vfioFile   = "etc/modprobe.d/vfio.conf"
	zfsFile    = "etc/modprobe.d/zfs.conf"
	arcMax     = "sys/module/zfs/parameters/zfs_arc_max"
	zfsRoot    = "root=ZFS=rpool/ROOT/pve-1 boot=zfs"
	grubText   = "# If you change this file, run 'update-grub' afterwards to update\nGRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n"

	enterprise9 = "Types: deb\nURIs: https://enterprise.proxmox.com/debian/pve\nSuites: trixie\nComponents: pve-enterprise\nSigned-By: /usr/share/keyrings/proxmox-archive-keyring.gpg\n"
	ceph9       = "Types: deb\nURIs: https://enterprise.proxmox.com/debian/ceph-squid\nSuites: trixie\nComponents: enterprise\nSigned-By: /usr/share/keyrings/proxmox-archive-keyring.gpg\n"
	enterprise8 = "deb https://enterprise.proxmox.com/debian/pve bookworm pve-enterprise\n"
)

func newScriptHost(t *testing.T, m hostSpec) *scriptHost {
	t.Helper()

	m.pve = cmp.Or(m.pve, "9.1.1")
	s := &scriptHost{t: t, locks: t.TempDir(), broken: map[string]bool{}, outputs: map[string]string{
		"pveversion":       "pve-manager/" + m.pve + "/42db4a6cf33dac83 (running kernel: x)\n",
		"systemctl reboot": "",
	}}
	s.host = start(t, hostOptions{speed: 10000, hardware: m.hardware, noImage: true, bash: true, intercept: s.intercept})

	if m.loader == "grub" || m.loader == "grub-by-tool" {
		s.write(grubFile, cmp.Or(m.cmdline, grubText))
	} else {
		s.write(grubFile, grubText) // has no effect
		s.write("proc/cmdline", `initrd=\EFI\proxmox\6.17.2-1-pve\initrd.img-6.17.2-1-pve `+zfsRoot+"\n")
	}

	if m.loader != "grub" {
		s.write(kernelFile, zfsRoot+"\n")
	}

	if m.loader == "" && m.cmdline != "" {
		s.write(kernelFile, m.cmdline)
	}

	if strings.HasPrefix(m.pve, "8.") {
		require.NoError(t, os.RemoveAll(s.path("etc/apt/sources.list.d")))
		s.write("etc/apt/sources.list", "deb http://deb.debian.org/debian bookworm main contrib\n")
		s.write("etc/apt/sources.list.d/pve-enterprise.list", enterprise8)
	}

	for name, content := range m.files {
		s.write(name, content)
	}

	return s
}

func (m hostSpec) hardware(o *datacentre.HostOptions) {
	o.Kernel, o.MemoryMiB = m.kernel, cmp.Or(m.memory, 96)<<10
	o.Firmware.BIOS, o.Firmware.SecureBoot = m.bios, m.secure
	o.Loader, o.BootTool = datacentre.LoaderSystemdBoot, m.loader != "grub"

	if m.loader != "" {
		o.Loader = datacentre.LoaderGRUB
	}

	if m.intel {
		o.CPUModel = "Intel(R) Xeon(R) E-2388G"
	}

	if m.zfs {
		o.Pools = []datacentre.ZPool{{Name: "rpool", SizeBytes: 928 * datacentre.GiB, Mirror: true, Root: true}}
	}

	o.PCI = []datacentre.PCIDevice{pci("0000:00:17.0", "", "0x010601", "8086:7ae2", "ahci", 3)}
	if m.gpu {
		o.PCI = append(o.PCI, pci("0000:01:00.0", "", "0x030000", "10de:27b0", "nouveau", 12),
			pci("0000:01:00.1", "", "0x040300", "10de:22bc", "snd_hda_intel", 12))
	}
}

// intercept logs the calls of the host's own commands, and has the outputs, faults and waits of tests.
func (s *scriptHost) intercept(ctx context.Context, words []string, stdout io.Writer) (bool, error) {
	call := strings.Join(words, " ")

	s.mu.Lock()
	defer s.mu.Unlock()

	s.calls = append(s.calls, call)

	if s.broken[words[0]] {
		return true, errors.New(words[0] + ": fails as asked")
	}

	if held := s.hold; held.call != "" && strings.HasPrefix(call, held.call) {
		s.hold.call = ""

		s.mu.Unlock()
		close(held.begun)

		select {
		case <-held.resume:
		case <-ctx.Done():
		}

		s.mu.Lock()

		return true, ctx.Err()
	}

	for name := call; name != ""; name = name[:max(0, strings.LastIndex(name, " "))] {
		if output, set := s.outputs[name]; set {
			_, err := io.WriteString(stdout, output)

			return true, err
		}
	}

	return false, nil
}

// setOutput sets the output of the host's own command for calls that begin with these words.
func (s *scriptHost) setOutput(call, output string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.outputs[call] = output
}

// setBroken makes a command fail, or repairs it.
func (s *scriptHost) setBroken(command string, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.broken[command] = broken
}

// holdCommand makes the next call that begins with these words wait.
func (s *scriptHost) holdCommand(call string) heldCommand {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.hold = heldCommand{call, make(chan struct{}), make(chan struct{})}

	return s.hold
}

// changingCalls returns the calls that change something, in order.
func (s *scriptHost) changingCalls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	var calls []string

	for _, call := range s.calls {
		for _, change := range []string{"update-", "proxmox-boot-tool refresh", "systemctl"} {
			if strings.HasPrefix(call, change) {
				calls = append(calls, call)
			}
		}
	}

	return calls
}

// setName sets the host's own name and its node name in Proxmox.
func (s *scriptHost) setName(own, node string) {
	s.t.Helper()
	s.setOutput("hostname", own+"\n")
	require.NoError(s.t, os.Remove(s.path("etc/pve/local")))

	if node != "" {
		require.NoError(s.t, os.Symlink("nodes/"+node, s.path("etc/pve/local")))
	}
}

func (s *scriptHost) path(name string) string { return filepath.Join(s.root, name) }

func (s *scriptHost) write(name, content string) {
	s.t.Helper()
	require.NoError(s.t, os.MkdirAll(filepath.Dir(s.path(name)), 0o755))     //nolint:gosec // as on hosts
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(content), 0o644)) //nolint:gosec // as on hosts
}

// writeOrRemove writes a file; "-" removes it.
func (s *scriptHost) writeOrRemove(name, content string) {
	s.t.Helper()

	if content == "-" {
		require.NoError(s.t, os.RemoveAll(s.path(name)))

		return
	}

	s.write(name, content)
}

func (s *scriptHost) read(name string) string {
	s.t.Helper()

	content, err := os.ReadFile(s.path(name))
	if os.IsNotExist(err) {
		return ""
	}

	require.NoError(s.t, err)

	return string(content)
}

// addProgram puts a program with this text first on PATH.
func (s *scriptHost) addProgram(name, text string) {
	s.t.Helper()
	scripttest.Program(s.t, s.path("usr/local/sbin/"+name), text)
}

// preparedHost returns a host that is prepared with the defaults.
func preparedHost(change ...func(*spec.Host)) spec.Host {
	h := spec.Host{Name: "pve1", Prep: &spec.Prep{IOMMU: true, Repositories: "keep", Reboot: "never"}}
	for _, c := range change {
		c(&h)
	}

	return h
}

func withGPU(h *spec.Host) {
	h.GPUs = []spec.Device{{Name: "rtx4000", Host: "pve1", PCI: "0000:01:00"}}
}

// scriptRun is a run of the host script.
type scriptRun struct {
	*ssh.Session

	stdout, stderr bytes.Buffer
}

func (s *scriptHost) begin(action string, h spec.Host, more ...scripts.Parameter) *scriptRun {
	s.t.Helper()

	session, err := s.client.NewSession()
	require.NoError(s.t, err)

	r := &scriptRun{Session: session}
	session.Stdin = strings.NewReader(scripts.Host(append(scripts.HostParameters(h, "talos-proxmox/lab", false), more...)))
	session.Stdout, session.Stderr = &r.stdout, &r.stderr
	require.NoError(s.t, session.Start(strings.ReplaceAll(scripts.HostCommand(action), "/run/lock", s.locks)))

	return r
}

// outcome is what a run printed, and its error.
type outcome struct {
	stdout, stderr string
	err            error
}

func (s *scriptHost) run(action string, h spec.Host, more ...scripts.Parameter) outcome {
	s.t.Helper()

	r := s.begin(action, h, more...)
	err := r.Wait()

	return outcome{r.stdout.String(), r.stderr.String(), err}
}

func (s *scriptHost) mustRun(action string, h spec.Host) outcome {
	s.t.Helper()
	r := s.run(action, h)
	require.NoError(s.t, r.err, r.stderr)

	return r
}

// prep is the part of the facts that tests of changes check.
type prep struct {
	Owner                               string
	Revision                            int
	Changes, Applied, Problems, Pending []string
}

func (s *scriptHost) apply(h spec.Host) prep {
	return parsePrep(s.t, s.mustRun(scripts.ActionApply, h).stdout)
}

func (s *scriptHost) facts(h spec.Host) prep {
	return parsePrep(s.t, s.mustRun(scripts.ActionFacts, h).stdout)
}

func (s *scriptHost) restore(h spec.Host) { s.mustRun(scripts.ActionRestore, h) }

func parsePrep(t *testing.T, stdout string) prep {
	t.Helper()

	var facts struct{ Prep prep }
	require.NoError(t, json.Unmarshal([]byte(stdout), &facts), stdout)

	return facts.Prep
}

// snapshot returns every file of the host's system with its content, mode and owner; with times, also its inode and
// modification time.
func (s *scriptHost) snapshot(times bool) map[string]string {
	s.t.Helper()

	files := map[string]string{}

	require.NoError(s.t, filepath.Walk(s.root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}

		name := strings.TrimPrefix(path, s.root)
		// Not what the script manages: images, and files of the lab and the test.
		if slices.Contains([]string{"/boot", "/tmp", "/usr/local", "/var/lib/lab"}, name) {
			return filepath.SkipDir
		}

		stat, ok := info.Sys().(*syscall.Stat_t)
		require.True(s.t, ok)

		entry := fmt.Sprintf("%s %d:%d", info.Mode(), stat.Uid, stat.Gid)
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path) //nolint:gosec // below the test's own folder
			if err != nil {
				return err
			}

			entry += " " + string(content)
		}

		if times {
			entry += fmt.Sprintf(" %d %s", stat.Ino, info.ModTime())
		}

		files[name] = entry

		return nil
	}))

	return files
}

func (s *scriptHost) assertUnchanged(before map[string]string, times bool, why string) {
	s.t.Helper()

	assert.Equal(s.t, before, s.snapshot(times), why)
}

// runCases runs the cases of a table.
func runCases[C interface{ check(t *testing.T) }](t *testing.T, cases map[string]C) {
	t.Helper()

	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}
