package scripts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/scripttest"
	"talos-proxmox/internal/spec"
)

// fakeHost is a folder with a Proxmox host's files, and stub commands on PATH that log their calls.
type fakeHost struct {
	t        *testing.T
	root     string // HOST_ROOT
	commands string // the stub commands, their outputs and their log
}

// hostSpec describes a fake host.
type hostSpec struct {
	vendor  string // amd (default) or intel
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
)

func (m hostSpec) withDefaults() hostSpec {
	m.vendor, m.kernel, m.pve = cmp.Or(m.vendor, "amd"), cmp.Or(m.kernel, "6.17.2-1-pve"), cmp.Or(m.pve, "9.1.1")
	m.loader, m.memory = cmp.Or(m.loader, "systemd-boot"), cmp.Or(m.memory, 96)

	return m
}

func newFakeHost(t *testing.T, m hostSpec) *fakeHost {
	t.Helper()

	m = m.withDefaults()

	host := &fakeHost{t: t, root: filepath.Join(t.TempDir(), "root"), commands: t.TempDir()}
	for _, folder := range []string{
		"etc/default", "etc/kernel", "etc/modprobe.d", "etc/modules-load.d", "etc/apt/sources.list.d", "var/lib", "run/lock",
		"sys/kernel/iommu_groups",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(host.root, folder), 0o755)) //nolint:gosec // as on hosts
	}

	host.setName("pve1", "pve1")
	host.writeSystem(m)
	host.writeBootLoader(m)
	host.writeRepositories(m)

	if m.gpu {
		host.addDevice("0000:01:00.0", "10de", "27b0", "030000", "nouveau", 12)
		host.addDevice("0000:01:00.1", "10de", "22bc", "040300", "snd_hda_intel", 12)
	}

	host.addDevice("0000:00:17.0", "8086", "7ae2", "010601", "ahci", 3)

	if m.zfs {
		host.write(arcMax, "0\n")
		host.write("sys/module/zfs/parameters/zfs_arc_min", "0\n")
		host.setOutput("zpool list", "rpool\t1992864825344\t1500000000000\tONLINE\n")
		host.setOutput("zpool get", "12\n")
		host.setOutput("zfs get", "on\n")
		host.setOutput("zpool status", "  pool: rpool\n state: ONLINE\nconfig:\n\n\tNAME        STATE     READ WRITE CKSUM\n\trpool       ONLINE       0     0     0\n"+
			"\t  mirror-0  ONLINE       0     0     0\n\t    sda3    ONLINE       0     0     0\n\t    sdb3    ONLINE       0     0     0\n\nerrors: No known data errors\n")
	}

	for name, content := range m.files {
		host.write(name, content)
	}

	return host
}

func (host *fakeHost) writeSystem(m hostSpec) {
	id := map[string]string{"amd": "AuthenticAMD", "intel": "GenuineIntel"}[m.vendor]
	host.write(
		"proc/cpuinfo",
		strings.Repeat(fmt.Sprintf("processor\t: 0\nvendor_id\t: %s\nmodel name\t: A \"fast\" CPU\n\n", id), 16),
	)
	host.write(
		"proc/meminfo",
		fmt.Sprintf("MemTotal:       %d kB\nMemFree:        1000 kB\nMemAvailable:   %d kB\n", m.memory<<20, m.memory<<19),
	)
	host.write("proc/sys/kernel/random/boot_id", "6fd5bd1a-0f0f-4c0c-8a8a-000000000001\n")

	table := map[string]string{"amd": "IVRS", "intel": "DMAR"}[m.vendor]
	host.write("sys/firmware/acpi/tables/"+table, "")
	host.setOutput("uname -r", m.kernel+"\n")
	host.setOutput("pveversion", "pve-manager/"+m.pve+"/42db4a6cf33dac83 (running kernel: "+m.kernel+")\n")
	host.setOutput("qm list", "      VMID NAME                 STATUS     MEM(MB)    BOOTDISK(GB) PID\n")
	host.setOutput("pct list", "")
	host.setOutput(
		"pvecm status", "Error: Corosync config '/etc/pve/corosync.conf' does not exist - is this node part of a cluster?\n",
	)
	host.setOutput("ha-manager status", "quorum OK\n")
	host.setOutput("pvesh get /nodes/pve1/tasks", "[]\n")
	host.setOutput("pvesh get /cluster/tasks", "[]\n")
	host.setOutput("pvesh get /cluster/resources", "[]\n")
	host.setOutput("lspci -Dnnk", "0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation AD104GL [RTX 4000 SFF Ada Generation] [10de:27b0] (rev a1)\n\tSubsystem: NVIDIA Corporation Device [10de:16fa]\n")
	host.setOutput("pvesh get /nodes/pve1/storage", `[{"storage":"local","content":"iso,vztmpl","type":"dir","active":1}]`+"\n")
	host.setOutput("pvesh get /nodes/pve1/qemu", "[]\n")
	host.setOutput("pvesh get /nodes/pve1/lxc", "[]\n")

	for _, command := range []string{
		"update-grub", "update-initramfs", "proxmox-boot-tool", "efibootmgr", "mokutil", "systemctl", "zpool", "zfs",
	} {
		host.addCommand(command)
	}
}

// setName sets the host's own name and its node name in Proxmox.
func (host *fakeHost) setName(own, node string) {
	host.t.Helper()
	host.setOutput("hostname", own+"\n")
	local := host.path("etc/pve/local")
	require.NoError(host.t, os.MkdirAll(filepath.Dir(local), 0o755)) //nolint:gosec // as on hosts
	require.NoError(host.t, os.RemoveAll(local))

	if node != "" {
		require.NoError(host.t, os.Symlink("nodes/"+node, local))
	}
}

// writeBootLoader writes the files of the host's boot loader, and what commands print about it.
func (host *fakeHost) writeBootLoader(m hostSpec) {
	if !m.bios {
		secure := "\x06\x00\x00\x00\x00"
		if m.secure {
			secure = "\x06\x00\x00\x00\x01"
		}

		host.write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", secure)
	}

	switch m.loader {
	case "systemd-boot":
		host.write(kernelFile, cmp.Or(m.cmdline, zfsRoot+"\n"))
		host.write("etc/kernel/proxmox-boot-uuids", "8A3C-1234\n")
		host.write(grubFile, grubText) // has no effect
		host.write("proc/cmdline", `initrd=\EFI\proxmox\6.17.2-1-pve\initrd.img-6.17.2-1-pve `+zfsRoot+"\n")
		host.setOutput(
			"proxmox-boot-tool status",
			"System currently booted with uefi\n8A3C-1234 is configured with: uefi (versions: 6.17.2-1-pve)\n",
		)
		host.setOutput("efibootmgr -v", "BootCurrent: 0001\nBoot0001* Linux Boot Manager\tHD(2,GPT)/File(\\EFI\\SYSTEMD\\SYSTEMD-BOOTX64.EFI)\nBoot0002* UEFI: PXE\n")
	default:
		host.write(grubFile, cmp.Or(m.cmdline, grubText))
		host.write("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz-6.17.2-1-pve root=/dev/mapper/pve-root ro quiet\n")
		host.setOutput("efibootmgr -v", "BootCurrent: 0000\nBoot0000* proxmox\tHD(2,GPT)/File(\\EFI\\proxmox\\shimx64.efi)\n")

		if m.loader == "grub-by-tool" {
			host.write("etc/kernel/proxmox-boot-uuids", "8A3C-1234\n")
			host.write(kernelFile, zfsRoot+"\n") // has no effect
			host.setOutput(
				"proxmox-boot-tool status",
				"System currently booted with uefi\n8A3C-1234 is configured with: grub (versions: 6.17.2-1-pve)\n",
			)
		}
	}
}

const (
	enterprise9 = "Types: deb\nURIs: https://enterprise.proxmox.com/debian/pve\nSuites: trixie\nComponents: pve-enterprise\nSigned-By: /usr/share/keyrings/proxmox-archive-keyring.gpg\n"
	ceph9       = "Types: deb\nURIs: https://enterprise.proxmox.com/debian/ceph-squid\nSuites: trixie\nComponents: enterprise\nSigned-By: /usr/share/keyrings/proxmox-archive-keyring.gpg\n"
	enterprise8 = "deb https://enterprise.proxmox.com/debian/pve bookworm pve-enterprise\n"
)

// writeRepositories writes the package repositories of a fresh installation.
func (host *fakeHost) writeRepositories(m hostSpec) {
	if strings.HasPrefix(m.pve, "8.") {
		host.write("etc/apt/sources.list", "deb http://deb.debian.org/debian bookworm main contrib\n")
		host.write("etc/apt/sources.list.d/pve-enterprise.list", enterprise8)

		return
	}

	host.write(
		"etc/apt/sources.list.d/debian.sources",
		"Types: deb\nURIs: http://deb.debian.org/debian/\nSuites: trixie trixie-updates\nComponents: main\n",
	)
	host.write("etc/apt/sources.list.d/pve-enterprise.sources", enterprise9)
	host.write("etc/apt/sources.list.d/ceph.sources", ceph9)
}

// addDevice adds a PCI function as sysfs shows it.
func (host *fakeHost) addDevice(address, vendor, addDevice, class, driver string, group int) {
	folder := "sys/bus/pci/devices/" + address
	host.write(folder+"/vendor", "0x"+vendor+"\n")
	host.write(folder+"/device", "0x"+addDevice+"\n")
	host.write(folder+"/class", "0x"+class+"\n")
	host.write(folder+"/subsystem_vendor", "0x"+vendor+"\n")
	host.write(folder+"/subsystem_device", "0x16fa\n")

	if driver != "" {
		require.NoError(host.t, os.Symlink("../../../../bus/pci/drivers/"+driver, host.path(folder+"/driver")))
	}

	groups := host.path(fmt.Sprintf("sys/kernel/iommu_groups/%d/devices", group))
	require.NoError(host.t, os.MkdirAll(groups, 0o755)) //nolint:gosec // as on hosts
	require.NoError(host.t, os.Symlink("../../../../bus/pci/devices/"+address, filepath.Join(groups, address)))
}

func (host *fakeHost) path(name string) string { return filepath.Join(host.root, name) }

func (host *fakeHost) write(name, content string) {
	host.t.Helper()
	require.NoError(host.t, os.MkdirAll(filepath.Dir(host.path(name)), 0o755))     //nolint:gosec // as on hosts
	require.NoError(host.t, os.WriteFile(host.path(name), []byte(content), 0o644)) //nolint:gosec // as on hosts
}

func (host *fakeHost) read(name string) string {
	host.t.Helper()

	content, err := os.ReadFile(host.path(name))
	if os.IsNotExist(err) {
		return ""
	}

	require.NoError(host.t, err)

	return string(content)
}

// fakeCommand logs its call, fails if a test wants that, and prints the output prepared for the longest prefix of its
// call.
const fakeCommand = `#!/usr/bin/env bash
call="${0##*/} $*"
fake=%q
printf '%%s\n' "$call" >>"$fake/log"
if [ -e "$fake/fail ${0##*/}" ]; then echo "${0##*/}: fails as asked" >&2; exit 1; fi
words=$call
while [ -n "$words" ]; do
  name=${words//\//%%}
  if [ -e "$fake/say $name" ]; then cat "$fake/say $name"; exit 0; fi
  case $words in *' '*) words=${words%% *} ;; *) words= ;; esac
done
`

func (host *fakeHost) addCommand(name string) {
	host.t.Helper()
	host.addProgram(name, fmt.Sprintf(fakeCommand, host.commands))
}

// addProgram puts a command with this text on PATH.
func (host *fakeHost) addProgram(name, text string) {
	host.t.Helper()
	scripttest.Program(host.t, filepath.Join(host.commands, name), text)
}

// breakCommand makes a command fail until it is repaired.
func (host *fakeHost) breakCommand(command string) (repair func()) {
	host.t.Helper()
	fault := filepath.Join(host.commands, "fail "+command)
	require.NoError(host.t, os.WriteFile(fault, nil, 0o600))

	return func() { require.NoError(host.t, os.Remove(fault)) }
}

// setOutput sets the output of a command for calls that begin with these words.
func (host *fakeHost) setOutput(call, output string) {
	host.t.Helper()

	name, _, _ := strings.Cut(call, " ")
	host.addCommand(name)
	require.NoError(
		host.t, os.WriteFile(filepath.Join(host.commands, "say "+strings.ReplaceAll(call, "/", "%")), []byte(output), 0o600),
	)
}

// changingCalls returns the calls that change something, in order.
func (host *fakeHost) changingCalls() []string {
	host.t.Helper()
	content, err := os.ReadFile(filepath.Join(host.commands, "log"))
	require.NoError(host.t, err)

	var calls []string

	for call := range strings.Lines(string(content)) {
		call = strings.TrimSpace(call)
		for _, change := range []string{"update-", "proxmox-boot-tool refresh", "systemctl"} {
			if strings.HasPrefix(call, change) {
				calls = append(calls, call)
			}
		}
	}

	return calls
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

func (host *fakeHost) newCommand(action string, h spec.Host, more ...Parameter) *exec.Cmd {
	host.t.Helper()
	cmd := exec.CommandContext(host.t.Context(), "bash", "-c", strings.ReplaceAll(HostCommand(action), "/run/lock", host.commands))
	cmd.Stdin = strings.NewReader(Host(append(HostParameters(h, "talos-proxmox/lab", false), more...)))
	cmd.Env = []string{"PATH=" + host.commands + ":" + os.Getenv("PATH"), "HOST_ROOT=" + host.root}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	return cmd
}

// result is the outcome of a run of the script.
type result struct {
	stdout, stderr string
	err            error
}

func (host *fakeHost) run(action string, h spec.Host, more ...Parameter) result {
	host.t.Helper()

	var stdout, stderr strings.Builder

	cmd := host.newCommand(action, h, more...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()

	return result{stdout.String(), stderr.String(), err}
}

func (host *fakeHost) mustRun(action string, h spec.Host) result {
	host.t.Helper()
	r := host.run(action, h)
	require.NoError(host.t, r.err, r.stderr)

	return r
}

// prep is the part of the facts that tests of changes check.
type prep struct {
	Owner                               string
	Revision                            int
	Changes, Applied, Problems, Pending []string
}

func (host *fakeHost) apply(h spec.Host) prep { return parsePrep(host.t, host.mustRun(ActionApply, h)) }

func (host *fakeHost) facts(h spec.Host) prep { return parsePrep(host.t, host.mustRun(ActionFacts, h)) }

func (host *fakeHost) restore(h spec.Host) { host.mustRun(ActionRestore, h) }

func parsePrep(t *testing.T, r result) prep {
	t.Helper()

	var facts struct{ Prep prep }
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &facts), r.stdout)

	return facts.Prep
}

// snapshot returns every file with its content, mode and owner; with times, also its inode and modification time.
func (host *fakeHost) snapshot(times bool) map[string]string {
	host.t.Helper()

	files := map[string]string{}

	require.NoError(host.t, filepath.Walk(host.root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}

		name := strings.TrimPrefix(path, host.root)
		stat, ok := info.Sys().(*syscall.Stat_t)
		require.True(host.t, ok)

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

func (host *fakeHost) assertUnchanged(before map[string]string, times bool, why string) {
	host.t.Helper()

	assert.Equal(host.t, before, host.snapshot(times), why)
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
