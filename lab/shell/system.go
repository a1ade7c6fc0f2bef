package shell

import (
	"context"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/hostos"
)

func (s *Server) hostname(_ context.Context, c call) error {
	if len(c.words) > 1 && (c.words[1] == "-f" || c.words[1] == "--fqdn") {
		c.printf("%s.lab.internal\n", s.host)

		return nil
	}

	c.printf("%s\n", s.host)

	return nil
}

func (s *Server) nproc(_ context.Context, c call) error {
	c.printf("%d\n", s.this().Cores)

	return nil
}

// uname prints what is asked for, in uname's own order.
func (s *Server) uname(_ context.Context, c call) error {
	h := s.this()
	asked := strings.NewReplacer(
		"--kernel-release", "-r", "--kernel-name", "-s", "--nodename", "-n", "--machine", "-m", "--all", "-a",
	).
		Replace(strings.Join(c.words[1:], ""))
	asked = strings.ReplaceAll(asked, "-", "")

	if asked == "" {
		asked = "s"
	}

	if strings.Contains(asked, "a") {
		asked = "snrvmo"
	}

	var parts []string

	for _, part := range []struct{ flag, text string }{
		{"s", "Linux"},
		{"n", h.Name},
		{"r", h.Boot.Kernel},
		{"v", hostos.KernelBuild(h)},
		{"m", "x86_64"},
		{"p", "unknown"},
		{"i", "unknown"},
		{"o", "GNU/Linux"},
	} {
		if strings.Contains(asked, part.flag) {
			parts = append(parts, part.text)
		}
	}

	c.printf("%s\n", strings.Join(parts, " "))

	return nil
}

func (s *Server) pveVersion(_ context.Context, c call) error {
	h := s.this()
	if len(c.words) > 1 && (c.words[1] == "-v" || c.words[1] == "--verbose") {
		c.printf("proxmox-ve: 9.2.0 (running kernel: %s)\n", h.Boot.Kernel)
		c.printf("pve-manager: %s (running version: %[1]s/%s)\nproxmox-kernel-helper: 9.0.4\nqemu-server: 9.2.6\nzfsutils-linux: 2.3.4-pve1\n", hostos.Version, hostos.RepoID)

		return nil
	}

	c.printf("pve-manager/%s/%s (running kernel: %s)\n", hostos.Version, hostos.RepoID, h.Boot.Kernel)

	return nil
}

// reboot is reboot, and systemctl's and shutdown's way to it: it is asked for, and the host goes down a moment later.
func (s *Server) reboot(context.Context, call) error { return s.dc.RebootHost(s.host) }

func (s *Server) shutdown(ctx context.Context, c call) error {
	words := strings.Join(c.words[1:], " ")
	if slices.Contains([]string{"-r now", "-r +0", "--reboot now", "-r -t 0", "-r 0"}, words) {
		return s.reboot(ctx, c)
	}

	c.errorf("shutdown: the lab's hosts only reboot, at once: shutdown -r now\n")

	return interp.ExitStatus(statusFailed)
}

func (s *Server) systemctl(ctx context.Context, c call) error {
	words := slices.DeleteFunc(slices.Clone(c.words[1:]), func(w string) bool { return strings.HasPrefix(w, "-") })
	if len(words) == 0 {
		words = []string{""}
	}

	switch verb, units := words[0], words[1:]; verb {
	case "reboot":
		return s.reboot(ctx, c)
	case "is-system-running":
		c.printf("running\n")
	case "is-active", "is-enabled":
		text := map[string]string{"is-active": "active\n", "is-enabled": "enabled\n"}[verb]
		c.printf("%s", strings.Repeat(text, len(units)))
	case "daemon-reload", "enable", "disable", "start", "stop", "restart", "reload", "try-restart", "reload-or-restart":
	default:
		c.errorf("Unknown command verb '%s'.\n", verb)

		return interp.ExitStatus(statusFailed)
	}

	return nil
}

// modprobe loads modules by name. That of a device that is served already changes nothing.
func (s *Server) modprobe(_ context.Context, c call) error {
	for _, name := range c.words[1:] {
		if strings.HasPrefix(name, "-") || strings.Contains(name, "=") {
			continue
		}

		if !slices.Contains(knownModules(), strings.ReplaceAll(name, "-", "_")) {
			c.errorf("modprobe: FATAL: Module %s not found in directory /lib/modules/%s\n", name, s.this().Boot.Kernel)

			return interp.ExitStatus(statusFailed)
		}

		if err := s.dc.LoadModule(s.host, name); err != nil {
			return err
		}
	}

	return nil
}

func knownModules() []string {
	return []string{
		"vfio", "vfio_iommu_type1", "vfio_pci", "vfio_pci_core", "nouveau", "snd_hda_intel", "nvme", "igb", "ast", "ahci",
		"xhci_hcd", "zfs", "spl", "kvm", "kvm_amd",
		"kvm_intel", "nvidiafb", "br_netfilter", "overlay",
	}
}

func (s *Server) lsmod(_ context.Context, c call) error {
	c.printf("Module                  Size  Used by\n")

	for _, name := range s.this().Boot.Modules {
		c.printf("%-23s %6d  0\n", name, 16384)
	}

	return nil
}

// dmesg prints what people look for in it.
func (s *Server) dmesg(_ context.Context, c call) error {
	h := s.this()
	c.printf("[    0.000000] Linux version %s\n[    0.000000] Command line: %s\n", h.Boot.Kernel, h.Boot.CommandLine)

	if !h.Firmware.IOMMUOff {
		table := map[bool]string{false: "IVRS", true: "DMAR"}[h.Intel()]
		c.printf("[    0.004713] ACPI: %s 0x00000000A8D2A000 0000D0 (v02 LAB    BOARD    00000001 LAB  00000001)\n", table)
	}

	switch {
	case !h.Boot.IOMMU:
	case h.Intel():
		c.printf(
			"[    0.012345] DMAR: IOMMU enabled\n[    0.612345] DMAR: Intel(R) Virtualization Technology for Directed I/O\n",
		)
	default:
		c.printf("[    0.312345] AMD-Vi: Interrupt remapping enabled\n[    0.512345] perf/amd_iommu: Detected AMD IOMMU #0 (2 banks, 4 counters/bank).\n")
	}

	return nil
}

// nothing answers commands that have nothing to list: there are no containers here.
func (s *Server) nothing(context.Context, call) error { return nil }
