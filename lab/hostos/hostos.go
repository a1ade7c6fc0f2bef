// Package hostos is the operating system on the disks of the lab's Proxmox hosts: Debian 13 with Proxmox VE 9.2, as far
// as scripts read it. It installs a root folder once, reads from it what a boot would use, and writes to its /proc and
// /sys what the kernel would show.
package hostos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// Versions of the lab's Proxmox VE.
const (
	Version = "9.2.6"
	RepoID  = "42db4a6cf33dac83"
)

// System is the operating system of all hosts, each in its root folder.
type System struct{}

// disk is a root folder.
type disk string

func (d disk) path(name string) string { return filepath.Join(string(d), filepath.FromSlash(name)) }

func (d disk) read(name string) (string, error) {
	b, err := os.ReadFile(d.path(name))

	return string(b), err
}

// text returns the content of a file; empty if there is none.
func (d disk) text(name string) string {
	text, err := d.read(name)
	if err != nil {
		return ""
	}

	return text
}

func (d disk) exists(name string) bool {
	_, err := os.Lstat(d.path(name))

	return err == nil
}

// write replaces a file atomically.
func (d disk) write(name, content string) error {
	path := d.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}

	temporary := path + ".lab-new"
	if err := os.WriteFile(temporary, []byte(content), 0o600); err != nil {
		return err
	}

	return os.Rename(temporary, path)
}

// configLines returns the lines of a configuration file without comments and blank lines.
func configLines(text string) []string {
	var list []string

	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}

	return list
}

// Install installs what is missing, and creates the boot images of a new disk.
func (System) Install(h datacentre.Host) error {
	d := disk(h.Root)

	if err := d.install(h); err != nil {
		return fmt.Errorf("furnish host %s: %w", h.Name, err)
	}

	if err := d.mountCluster(h.Name); err != nil {
		return fmt.Errorf("mount /etc/pve of host %s: %w", h.Name, err)
	}

	return nil
}

// WriteCA writes the certificate of the cluster's CA, where every Proxmox host has it.
func (System) WriteCA(h datacentre.Host, authority string) error {
	if err := disk(h.Root).write("etc/pve/pve-root-ca.pem", authority); err != nil {
		return fmt.Errorf("write the certificate of the authority on host %s: %w", h.Name, err)
	}

	return nil
}

// mountCluster shows the part of Proxmox' cluster file system that scripts read: which node the host is.
func (d disk) mountCluster(host string) error {
	if err := os.MkdirAll(d.path("etc/pve/nodes/"+host), 0o700); err != nil {
		return err
	}

	return d.replaceLink("etc/pve/local", "nodes/"+host)
}

// install runs once: later changes by scripts stay. It writes the marker last.
func (d disk) install(h datacentre.Host) error {
	const marker = "var/lib/lab/installed"
	if d.exists(marker) {
		return nil
	}

	for _, name := range folders() {
		if err := os.MkdirAll(d.path(name), 0o700); err != nil {
			return err
		}
	}

	for name, content := range files(h) {
		if d.exists(name) {
			continue
		}

		if err := d.write(name, content); err != nil {
			return err
		}
	}

	if err := os.Symlink("../modules", d.path("etc/modules-load.d/modules.conf")); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		return err
	}

	if err := d.updateInitramfs(h.Kernel); err != nil {
		return err
	}

	if h.Loader == datacentre.LoaderGRUB && !h.BootTool {
		if err := d.updateGRUB(h); err != nil {
			return err
		}
	} else if err := d.refreshESP(h); err != nil {
		return err
	}

	return d.write(marker, Version+"\n")
}

// Kernels returns the installed releases, oldest first.
func (System) Kernels(h datacentre.Host) []string { return disk(h.Root).kernels() }

// UpdateInitramfs creates a kernel's boot image from the current files.
func (System) UpdateInitramfs(h datacentre.Host, kernel string) error {
	return disk(h.Root).updateInitramfs(kernel)
}

// UpdateGRUB writes GRUB's configuration.
func (System) UpdateGRUB(h datacentre.Host) error { return disk(h.Root).updateGRUB(h) }

// RefreshESP does what proxmox-boot-tool refresh does.
func (System) RefreshESP(h datacentre.Host) error { return disk(h.Root).refreshESP(h) }

// BootPartitions returns the partitions that proxmox-boot-tool manages; none if its list is missing.
func (System) BootPartitions(h datacentre.Host) []string {
	return configLines(disk(h.Root).text("etc/kernel/proxmox-boot-uuids"))
}
