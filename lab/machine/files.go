package machine

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// files are the machine's readable files: what the kernel, Talos and its extensions say of themselves; the caller holds the lock.
func (m *machine) files() map[string]string {
	files := map[string]string{
		"/proc/sys/kernel/random/boot_id": m.bootID + "\n",
		"/proc/cmdline":                   m.cmdline() + "\n",
		"/proc/version":                   "Linux version " + kernelVersion + "\n",
		"/proc/uptime":                    fmt.Sprintf("%.2f 0.00\n", m.uptime().Seconds()),
		"/proc/loadavg":                   "0.10 0.10 0.10 1/200 1000\n",
		"/proc/meminfo":                   m.procMemory(),
		"/proc/cpuinfo":                   m.procCPU(),
		"/proc/mounts":                    m.procMounts(),
		"/etc/hostname":                   m.hostname + "\n",
		"/etc/hosts":                      m.hosts(),
		"/etc/os-release":                 fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%s\nPRETTY_NAME=\"Talos (%s)\"\n", m.system.Version, m.system.Version),
		"/etc/resolv.conf":                m.resolvConf(),
		"/sys/class/dmi/id/product_uuid":  m.hw.UUID + "\n",
	}

	if m.disk.Configuration != "" {
		files["/system/state/config.yaml"] = m.disk.Configuration
	}

	// Whether etcd has been here is what clients ask; its database is only told by its name.
	if m.disk.Etcd != nil {
		files[constants.EtcdDataPath+"/member/snap/db"] = ""
	}

	maps.Copy(files, m.kernel.Files(m.config))

	return files
}

func (m *machine) cmdline() string {
	return strings.Join(append([]string{"talos.platform=" + m.system.Platform, "console=tty1", "init_on_alloc=1", "slab_nomerge", "pti=on"}, m.schematic.KernelArgs...), " ")
}

func (m *machine) procMemory() string {
	total := m.hw.MemoryMiB * 1024
	free := total - min(total, systemMemoryKB)

	return fmt.Sprintf("MemTotal:       %8d kB\nMemFree:        %8d kB\nMemAvailable:   %8d kB\n", total, free, free)
}

func (m *machine) procCPU() string {
	var text strings.Builder

	for i := range m.hw.Cores {
		fmt.Fprintf(&text, "processor\t: %d\nvendor_id\t: GenuineIntel\nmodel name\t: QEMU Virtual CPU\ncpu MHz\t\t: 2400.000\ncpu cores\t: %d\n\n", i, m.hw.Cores)
	}

	return text.String()
}

func (m *machine) procMounts() string {
	var text strings.Builder

	for _, v := range m.disks.Partitions() {
		if v.Mount != "" {
			fmt.Fprintf(&text, "%s %s xfs rw,nodev,nosuid,noatime 0 0\n", v.Device, v.Mount)
		}
	}

	return text.String()
}

func (m *machine) hosts() string {
	text := "127.0.0.1 localhost\n"
	if m.net.Node.IsValid() && m.hostname != "" {
		text += m.net.Node.String() + " " + m.hostname + "\n"
	}

	return text
}

func (m *machine) resolvConf() string {
	var text strings.Builder

	for _, a := range m.net.DNS {
		fmt.Fprintf(&text, "nameserver %s\n", a)
	}

	return text.String()
}

// entry is a file or folder of a machine.
type entry struct {
	path, relative string
	content        string
	folder         bool
	depth          int
}

func (e entry) mode() fs.FileMode {
	if e.folder {
		return fs.ModeDir | 0o755
	}

	return 0o644
}

// walk lists what is at a path and below, folders before their content; the error is the file system's.
func (m *machine) walk(root string) ([]entry, time.Time, error) {
	m.ms.mu.Lock()
	files, booted := m.files(), m.bootedAt
	m.ms.mu.Unlock()

	root = path.Clean("/" + root)
	if content, ok := files[root]; ok {
		return []entry{{path: root, relative: path.Base(root), content: content}}, booted, nil
	}

	found := map[string]entry{root: {path: root, relative: ".", folder: true}}

	for name, content := range files {
		relative, inside := strings.CutPrefix(name, strings.TrimSuffix(root, "/")+"/")
		if !inside {
			continue
		}

		parts := strings.Split(relative, "/")

		for i := range parts {
			below := strings.Join(parts[:i+1], "/")
			e := entry{path: path.Join(root, below), relative: below, folder: true, depth: i + 1}

			if i == len(parts)-1 {
				e.folder, e.content = false, content
			}

			found[e.path] = e
		}
	}

	if len(found) == 1 && root != "/" {
		return nil, booted, fmt.Errorf("lstat %s: no such file or directory", root)
	}

	entries := make([]entry, 0, len(found))
	for _, e := range found {
		entries = append(entries, e)
	}

	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })

	return entries, booted, nil
}
