package hostos

import (
	"fmt"

	"talos-proxmox/lab/datacentre"
)

// espID is the file system ID of the boot loader's partition.
const espID = "C0D5-3F6A"

func folders() []string {
	return []string{
		"boot/efi", "boot/grub", "dev", "etc/apt/sources.list.d", "etc/default/grub.d", "etc/initramfs-tools/conf.d",
		"etc/kernel", "etc/modprobe.d",
		"etc/modules-load.d", "etc/pve", "proc", "root", "run/lock", "sys", "tmp", "usr/share/keyrings", "usr/sbin",
		"var/lib/lab", "var/tmp",
	}
}

// files are the files of a fresh installation of Proxmox VE 9.2 that scripts read or change.
func files(h datacentre.Host) map[string]string {
	list := map[string]string{
		"boot/vmlinuz-" + h.Kernel: "Linux " + h.Kernel + "\n",
		"etc/hostname":             h.Name + "\n",
		"etc/hosts": fmt.Sprintf(
			"127.0.0.1 localhost.localdomain localhost\n%s %s.lab.internal %[2]s\n", h.Address, h.Name,
		),
		"etc/modules":                 "# /etc/modules is obsolete and has been replaced by /etc/modules-load.d/.\n# Please see modules-load.d(5) and modprobe.d(5) for details.\n",
		"etc/initramfs-tools/modules": "# List of modules that you want to include in your initramfs.\n# They will be loaded at boot time in the order below.\n",
		"etc/apt/sources.list.d/pve-enterprise.sources": source(
			"https://enterprise.proxmox.com/debian/pve", "pve-enterprise",
		),
		"etc/apt/sources.list.d/ceph.sources": source("https://enterprise.proxmox.com/debian/ceph-squid", "enterprise"),
		"etc/apt/sources.list.d/debian.sources": "Types: deb\nURIs: mirror+file:/etc/apt/mirrors/debian.list\nSuites: trixie trixie-updates\n" +
			"Components: main contrib non-free-firmware\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
		"etc/default/grub": grubDefaults(h),
		"usr/share/keyrings/proxmox-archive-keyring.gpg": "",
	}

	if h.BootTool {
		list["etc/kernel/proxmox-boot-uuids"] = espID + "\n"
	}

	if pool := h.ZFSRoot(); pool != "" {
		list["etc/kernel/cmdline"] = "root=ZFS=" + pool + "/ROOT/pve-1 boot=zfs\n"
	}

	return list
}

func source(uri, component string) string {
	return "Types: deb\nURIs: " + uri + "\nSuites: trixie\nComponents: " + component +
		"\nSigned-By: /usr/share/keyrings/proxmox-archive-keyring.gpg\n"
}

func grubDefaults(h datacentre.Host) string {
	parameters := ""
	if pool := h.ZFSRoot(); pool != "" {
		parameters = "root=ZFS=" + pool + "/ROOT/pve-1 boot=zfs"
	}

	return `# If you change this file or any /etc/default/grub.d/*.cfg file,
# run 'update-grub' afterwards to update /boot/grub/grub.cfg.
# For full documentation of the options in these files, see:
#   info -f grub -n 'Simple configuration'

GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR="Proxmox Virtual Environment"
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="` + parameters + `"

# Uncomment to disable graphical terminal
#GRUB_TERMINAL=console
`
}
