package talosapi

import (
	"fmt"
	"strings"
)

// Files are those in which the kernel and Talos say what the machine is.
func (f Facts) Files() map[string]string {
	return map[string]string{
		"/proc/sys/kernel/random/boot_id": f.BootID + "\n",
		"/proc/cmdline":                   f.Cmdline + "\n",
		"/proc/version":                   "Linux version " + f.Kernel + "\n",
		"/proc/uptime":                    fmt.Sprintf("%.2f 0.00\n", f.Uptime.Seconds()),
		"/proc/loadavg":                   "0.10 0.10 0.10 1/200 1000\n",
		"/proc/meminfo":                   f.procMemory(),
		"/proc/cpuinfo":                   f.procCPU(),
		"/proc/mounts":                    f.procMounts(),
		"/etc/hostname":                   f.Hostname + "\n",
		"/etc/hosts":                      f.hosts(),
		"/etc/os-release": fmt.Sprintf(
			"NAME=\"Talos\"\nID=talos\nVERSION_ID=%s\nPRETTY_NAME=\"Talos (%s)\"\n", f.Version, f.Version,
		),
		"/etc/resolv.conf":               f.resolvConf(),
		"/sys/class/dmi/id/product_uuid": f.UUID + "\n",
	}
}

func (f Facts) procMemory() string {
	total := f.MemoryMiB * 1024
	free := total - min(total, systemMemoryKB)

	return fmt.Sprintf("MemTotal:       %8d kB\nMemFree:        %8d kB\nMemAvailable:   %8d kB\n", total, free, free)
}

func (f Facts) procCPU() string {
	var text strings.Builder

	for i := range f.Cores {
		fmt.Fprintf(&text, "processor\t: %d\nvendor_id\t: GenuineIntel\nmodel name\t: QEMU Virtual CPU\ncpu MHz\t\t: 2400.000\ncpu cores\t: %d\n\n", i, f.Cores)
	}

	return text.String()
}

func (f Facts) procMounts() string {
	var text strings.Builder

	for _, v := range f.Mounts {
		fmt.Fprintf(&text, "%s %s xfs rw,nodev,nosuid,noatime 0 0\n", v.Device, v.Path)
	}

	return text.String()
}

func (f Facts) hosts() string {
	text := "127.0.0.1 localhost\n"
	if f.Address.IsValid() && f.Hostname != "" {
		text += f.Address.String() + " " + f.Hostname + "\n"
	}

	return text
}

func (f Facts) resolvConf() string {
	var text strings.Builder

	for _, a := range f.DNS {
		fmt.Fprintf(&text, "nameserver %s\n", a)
	}

	return text.String()
}
