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

// tree is a Proxmox host as a prepared folder: files as they are on a host, and small commands on PATH that say what
// they were called with.
type tree struct {
	t    *testing.T
	root string // HOST_ROOT
	fake string // the commands and what they say
}

// machine is what a tree is made from.
type machine struct {
	vendor  string // amd (default) or intel
	kernel  string // default 6.17.2-1-pve
	pve     string // default 9.1.1
	loader  string // systemd-boot (default), grub or grub-by-tool (GRUB that proxmox-boot-tool manages)
	secure  bool   // Secure Boot
	bios    bool   // no EFI
	zfs     bool
	memory  int    // GiB; default 96
	cmdline string // the loader's file; default a usual one
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

func (m machine) withDefaults() machine {
	m.vendor, m.kernel, m.pve = cmp.Or(m.vendor, "amd"), cmp.Or(m.kernel, "6.17.2-1-pve"), cmp.Or(m.pve, "9.1.1")
	m.loader, m.memory = cmp.Or(m.loader, "systemd-boot"), cmp.Or(m.memory, 96)

	return m
}

func newTree(t *testing.T, m machine) *tree {
	t.Helper()

	m = m.withDefaults()

	tr := &tree{t: t, root: filepath.Join(t.TempDir(), "root"), fake: t.TempDir()}
	for _, folder := range []string{
		"etc/default", "etc/kernel", "etc/modprobe.d", "etc/modules-load.d", "etc/apt/sources.list.d", "var/lib", "run/lock",
		"sys/kernel/iommu_groups",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(tr.root, folder), 0o755)) //nolint:gosec // a host's
	}

	tr.is("pve1", "pve1")
	tr.system(m)
	tr.boot(m)
	tr.repositories(m)

	if m.gpu {
		tr.device("0000:01:00.0", "10de", "27b0", "030000", "nouveau", 12)
		tr.device("0000:01:00.1", "10de", "22bc", "040300", "snd_hda_intel", 12)
	}

	tr.device("0000:00:17.0", "8086", "7ae2", "010601", "ahci", 3)

	if m.zfs {
		tr.write(arcMax, "0\n")
		tr.write("sys/module/zfs/parameters/zfs_arc_min", "0\n")
		tr.say("zpool list", "rpool\t1992864825344\t1500000000000\tONLINE\n")
		tr.say("zpool get", "12\n")
		tr.say("zfs get", "on\n")
		tr.say("zpool status", "  pool: rpool\n state: ONLINE\nconfig:\n\n\tNAME        STATE     READ WRITE CKSUM\n\trpool       ONLINE       0     0     0\n"+
			"\t  mirror-0  ONLINE       0     0     0\n\t    sda3    ONLINE       0     0     0\n\t    sdb3    ONLINE       0     0     0\n\nerrors: No known data errors\n")
	}

	for name, content := range m.files {
		tr.write(name, content)
	}

	return tr
}

func (tr *tree) system(m machine) {
	id := map[string]string{"amd": "AuthenticAMD", "intel": "GenuineIntel"}[m.vendor]
	tr.write(
		"proc/cpuinfo",
		strings.Repeat(fmt.Sprintf("processor\t: 0\nvendor_id\t: %s\nmodel name\t: A \"fast\" CPU\n\n", id), 16),
	)
	tr.write(
		"proc/meminfo",
		fmt.Sprintf("MemTotal:       %d kB\nMemFree:        1000 kB\nMemAvailable:   %d kB\n", m.memory<<20, m.memory<<19),
	)
	tr.write("proc/sys/kernel/random/boot_id", "6fd5bd1a-0f0f-4c0c-8a8a-000000000001\n")

	table := map[string]string{"amd": "IVRS", "intel": "DMAR"}[m.vendor]
	tr.write("sys/firmware/acpi/tables/"+table, "")
	tr.say("uname -r", m.kernel+"\n")
	tr.say("pveversion", "pve-manager/"+m.pve+"/42db4a6cf33dac83 (running kernel: "+m.kernel+")\n")
	tr.say("qm list", "      VMID NAME                 STATUS     MEM(MB)    BOOTDISK(GB) PID\n")
	tr.say("pct list", "")
	tr.say(
		"pvecm status", "Error: Corosync config '/etc/pve/corosync.conf' does not exist - is this node part of a cluster?\n",
	)
	tr.say("ha-manager status", "quorum OK\n")
	tr.say("pvesh get /nodes/pve1/tasks", "[]\n")
	tr.say("pvesh get /cluster/tasks", "[]\n")
	tr.say("pvesh get /cluster/resources", "[]\n")
	tr.say("lspci -Dnnk", "0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation AD104GL [RTX 4000 SFF Ada Generation] [10de:27b0] (rev a1)\n\tSubsystem: NVIDIA Corporation Device [10de:16fa]\n")
	tr.say("pvesh get /nodes/pve1/storage", `[{"storage":"local","content":"iso,vztmpl","type":"dir","active":1}]`+"\n")
	tr.say("pvesh get /nodes/pve1/qemu", "[]\n")
	tr.say("pvesh get /nodes/pve1/lxc", "[]\n")

	for _, command := range []string{
		"update-grub", "update-initramfs", "proxmox-boot-tool", "efibootmgr", "mokutil", "systemctl", "zpool", "zfs",
	} {
		tr.command(command)
	}
}

// is gives the host its own name and the one that Proxmox knows it by.
func (tr *tree) is(own, node string) {
	tr.t.Helper()
	tr.say("hostname", own+"\n")
	local := tr.path("etc/pve/local")
	require.NoError(tr.t, os.MkdirAll(filepath.Dir(local), 0o755)) //nolint:gosec // a host's
	require.NoError(tr.t, os.RemoveAll(local))

	if node != "" {
		require.NoError(tr.t, os.Symlink("nodes/"+node, local))
	}
}

// boot writes what the boot loader in charge leaves behind.
func (tr *tree) boot(m machine) {
	if !m.bios {
		secure := "\x06\x00\x00\x00\x00"
		if m.secure {
			secure = "\x06\x00\x00\x00\x01"
		}

		tr.write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", secure)
	}

	switch m.loader {
	case "systemd-boot":
		tr.write(kernelFile, cmp.Or(m.cmdline, zfsRoot+"\n"))
		tr.write("etc/kernel/proxmox-boot-uuids", "8A3C-1234\n")
		tr.write(grubFile, grubText) // there, and of no effect
		tr.write("proc/cmdline", `initrd=\EFI\proxmox\6.17.2-1-pve\initrd.img-6.17.2-1-pve `+zfsRoot+"\n")
		tr.say(
			"proxmox-boot-tool status",
			"System currently booted with uefi\n8A3C-1234 is configured with: uefi (versions: 6.17.2-1-pve)\n",
		)
		tr.say("efibootmgr -v", "BootCurrent: 0001\nBoot0001* Linux Boot Manager\tHD(2,GPT)/File(\\EFI\\SYSTEMD\\SYSTEMD-BOOTX64.EFI)\nBoot0002* UEFI: PXE\n")
	default:
		tr.write(grubFile, cmp.Or(m.cmdline, grubText))
		tr.write("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz-6.17.2-1-pve root=/dev/mapper/pve-root ro quiet\n")
		tr.say("efibootmgr -v", "BootCurrent: 0000\nBoot0000* proxmox\tHD(2,GPT)/File(\\EFI\\proxmox\\shimx64.efi)\n")

		if m.loader == "grub-by-tool" {
			tr.write("etc/kernel/proxmox-boot-uuids", "8A3C-1234\n")
			tr.write(kernelFile, zfsRoot+"\n") // there, and of no effect
			tr.say(
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

// repositories are those of a fresh installation.
func (tr *tree) repositories(m machine) {
	if strings.HasPrefix(m.pve, "8.") {
		tr.write("etc/apt/sources.list", "deb http://deb.debian.org/debian bookworm main contrib\n")
		tr.write("etc/apt/sources.list.d/pve-enterprise.list", enterprise8)

		return
	}

	tr.write(
		"etc/apt/sources.list.d/debian.sources",
		"Types: deb\nURIs: http://deb.debian.org/debian/\nSuites: trixie trixie-updates\nComponents: main\n",
	)
	tr.write("etc/apt/sources.list.d/pve-enterprise.sources", enterprise9)
	tr.write("etc/apt/sources.list.d/ceph.sources", ceph9)
}

// device adds a PCI function as sysfs shows it.
func (tr *tree) device(address, vendor, device, class, driver string, group int) {
	folder := "sys/bus/pci/devices/" + address
	tr.write(folder+"/vendor", "0x"+vendor+"\n")
	tr.write(folder+"/device", "0x"+device+"\n")
	tr.write(folder+"/class", "0x"+class+"\n")
	tr.write(folder+"/subsystem_vendor", "0x"+vendor+"\n")
	tr.write(folder+"/subsystem_device", "0x16fa\n")

	if driver != "" {
		require.NoError(tr.t, os.Symlink("../../../../bus/pci/drivers/"+driver, tr.path(folder+"/driver")))
	}

	groups := tr.path(fmt.Sprintf("sys/kernel/iommu_groups/%d/devices", group))
	require.NoError(tr.t, os.MkdirAll(groups, 0o755)) //nolint:gosec // a host's
	require.NoError(tr.t, os.Symlink("../../../../bus/pci/devices/"+address, filepath.Join(groups, address)))
}

func (tr *tree) path(name string) string { return filepath.Join(tr.root, name) }

func (tr *tree) write(name, content string) {
	tr.t.Helper()
	require.NoError(tr.t, os.MkdirAll(filepath.Dir(tr.path(name)), 0o755))     //nolint:gosec // a host's
	require.NoError(tr.t, os.WriteFile(tr.path(name), []byte(content), 0o644)) //nolint:gosec // a host's
}

func (tr *tree) read(name string) string {
	tr.t.Helper()

	content, err := os.ReadFile(tr.path(name))
	if os.IsNotExist(err) {
		return ""
	}

	require.NoError(tr.t, err)

	return string(content)
}

// fakeCommand notes its call, does what a test put in its way, and says what was prepared: the longest file whose name
// begins its call.
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

func (tr *tree) command(name string) {
	tr.t.Helper()
	tr.program(name, fmt.Sprintf(fakeCommand, tr.fake))
}

// program puts a command of this text on PATH.
func (tr *tree) program(name, text string) {
	tr.t.Helper()
	scripttest.Program(tr.t, filepath.Join(tr.fake, name), text)
}

// fails has a command fail until it is given free.
func (tr *tree) fails(command string) (free func()) {
	tr.t.Helper()
	fault := filepath.Join(tr.fake, "fail "+command)
	require.NoError(tr.t, os.WriteFile(fault, nil, 0o600))

	return func() { require.NoError(tr.t, os.Remove(fault)) }
}

// say prepares what a command prints when it is called with these words, or more.
func (tr *tree) say(call, output string) {
	tr.t.Helper()

	name, _, _ := strings.Cut(call, " ")
	tr.command(name)
	require.NoError(
		tr.t, os.WriteFile(filepath.Join(tr.fake, "say "+strings.ReplaceAll(call, "/", "%")), []byte(output), 0o600),
	)
}

// calls are the commands that changed something, in order.
func (tr *tree) calls() []string {
	tr.t.Helper()
	content, err := os.ReadFile(filepath.Join(tr.fake, "log"))
	require.NoError(tr.t, err)

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

// hostOf is a host that is prepared with the defaults.
func hostOf(change ...func(*spec.Host)) spec.Host {
	h := spec.Host{Name: "pve1", Prep: &spec.Prep{IOMMU: true, Repositories: "keep", Reboot: "never"}}
	for _, c := range change {
		c(&h)
	}

	return h
}

func withGPU(h *spec.Host) { h.GPUs = []spec.GPU{{Name: "rtx4000", Host: "pve1", PCI: "0000:01:00"}} }

func (tr *tree) exec(action string, h spec.Host, more ...Parameter) *exec.Cmd {
	tr.t.Helper()
	cmd := exec.CommandContext(tr.t.Context(), "bash", "-c", strings.ReplaceAll(HostCommand(action), "/run/lock", tr.fake))
	cmd.Stdin = strings.NewReader(Host(append(HostParameters(h, "talos-proxmox/lab", false), more...)))
	cmd.Env = []string{"PATH=" + tr.fake + ":" + os.Getenv("PATH"), "HOST_ROOT=" + tr.root}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	return cmd
}

// result is what a run of the script said.
type result struct {
	stdout, stderr string
	err            error
}

func (tr *tree) run(action string, h spec.Host, more ...Parameter) result {
	tr.t.Helper()

	var stdout, stderr strings.Builder

	cmd := tr.exec(action, h, more...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()

	return result{stdout.String(), stderr.String(), err}
}

// succeeds is run for what has to.
func (tr *tree) succeeds(action string, h spec.Host) result {
	tr.t.Helper()
	r := tr.run(action, h)
	require.NoError(tr.t, r.err, r.stderr)

	return r
}

// prep is the part of the facts that the tests of changes look at.
type prep struct {
	Owner                               string
	Revision                            int
	Changes, Applied, Problems, Pending []string
}

func (tr *tree) apply(h spec.Host) prep { return prepOf(tr.t, tr.succeeds(ActionApply, h)) }

func (tr *tree) facts(h spec.Host) prep { return prepOf(tr.t, tr.succeeds(ActionFacts, h)) }

func (tr *tree) restore(h spec.Host) { tr.succeeds(ActionRestore, h) }

func prepOf(t *testing.T, r result) prep {
	t.Helper()

	var facts struct{ Prep prep }
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &facts), r.stdout)

	return facts.Prep
}

// snapshot is every file below etc, sys, var and proc with content, mode, owner and, where times is set, its inode and
// time of change.
func (tr *tree) snapshot(times bool) map[string]string {
	tr.t.Helper()

	files := map[string]string{}

	require.NoError(tr.t, filepath.Walk(tr.root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}

		name := strings.TrimPrefix(path, tr.root)
		stat, ok := info.Sys().(*syscall.Stat_t)
		require.True(tr.t, ok)

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

func (tr *tree) unchanged(before map[string]string, times bool, why string) {
	tr.t.Helper()

	assert.Equal(tr.t, before, tr.snapshot(times), why)
}

// each runs the cases of a table.
func each[C interface{ check(t *testing.T) }](t *testing.T, cases map[string]C) {
	t.Helper()

	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}
