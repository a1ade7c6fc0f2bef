package shell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

func (c call) errorf(format string, a ...any) { fmt.Fprintf(c.Stderr, format, a...) } //nolint:errcheck

func (s *Server) this() datacentre.Host {
	h, _ := s.dc.Host(s.host)

	return h
}

// takes lets modelled time pass.
func (s *Server) takes(ctx context.Context, d time.Duration) error { return s.dc.Clock().Sleep(ctx, d) }

// system error texts, as Debian's programs print them.
func reason(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "No space left on device"
	case errors.Is(err, syscall.EROFS):
		return "Read-only file system"
	case errors.Is(err, fs.ErrPermission):
		return "Permission denied"
	default:
		return err.Error()
	}
}

// updateInitramfs is update-initramfs -u [-k version|all].
func (s *Server) updateInitramfs(ctx context.Context, c call) error {
	kernels, update := s.system.Kernels(s.host), false
	if len(kernels) == 0 {
		c.errorf("update-initramfs: no kernel in /boot\n")

		return interp.ExitStatus(statusFailed)
	}

	chosen := kernels[len(kernels)-1:]

	for i := 1; i < len(c.words); i++ {
		switch word := c.words[i]; {
		case word == "-u" || word == "-c":
			update = true
		case word == "-v":
		case word == "-k" && i+1 < len(c.words):
			i++
			chosen = []string{c.words[i]}
		case strings.HasPrefix(word, "-k") && len(word) > 2:
			chosen = []string{word[2:]}
		default:
			c.errorf("update-initramfs: unrecognised option: '%s'\n", word)

			return interp.ExitStatus(statusFailed)
		}
	}

	if !update {
		c.errorf("You must specify at least one of -c, -u, or -d.\n")

		return interp.ExitStatus(statusFailed)
	}

	if chosen[0] == "all" {
		chosen = slices.Clone(kernels)
		slices.Reverse(chosen)
	}

	for _, kernel := range chosen {
		if !slices.Contains(kernels, kernel) {
			c.errorf("/boot/initrd.img-%s does not exist. Cannot update.\n", kernel)

			return interp.ExitStatus(statusFailed)
		}

		c.printf("update-initramfs: Generating /boot/initrd.img-%s\n", kernel)

		if err := s.takes(ctx, s.dc.Durations().Initramfs); err != nil {
			return err
		}

		if err := s.write(func() error { return s.system.UpdateInitramfs(s.host, kernel) }); err != nil {
			c.errorf(
				"E: mkinitramfs failure: %s\nupdate-initramfs: failed for /boot/initrd.img-%s with 1.\n", reason(err), kernel,
			)

			return interp.ExitStatus(statusFailed)
		}

		// The boot loader's partition gets the image at once.
		c.printf("Running hook script 'zz-proxmox-boot'..\n")

		if err := s.syncESP(ctx, c); err != nil {
			return err
		}
	}

	return nil
}

// syncESP is Proxmox' hook behind kernels and images.
func (s *Server) syncESP(ctx context.Context, c call) error {
	c.printf("Re-executing '/etc/kernel/postinst.d/zz-proxmox-boot' in new private mount namespace..\n")

	partitions := s.system.BootPartitions(s.host)
	if len(partitions) == 0 {
		c.printf("No /etc/kernel/proxmox-boot-uuids found, skipping ESP sync.\n")

		return nil
	}

	if err := s.takes(ctx, s.dc.Durations().BootLoader); err != nil {
		return err
	}

	h, text := s.this(), "Copying kernel and creating boot-entry for"
	if h.Loader == datacentre.LoaderGRUB {
		text = "Copying kernel"
	}

	for _, id := range partitions {
		c.printf("Copying and configuring kernels on /dev/disk/by-uuid/%s\n", id)

		for _, kernel := range s.system.Kernels(s.host) {
			c.printf("\t%s %s\n", text, kernel)
		}
	}

	if err := s.system.RefreshESP(h); err != nil {
		c.errorf("%s\n", reason(err))

		return interp.ExitStatus(statusFailed)
	}

	if h.Loader == datacentre.LoaderGRUB {
		s.sayGRUB(c)
	}

	return nil
}

func (s *Server) sayGRUB(c call) {
	// GRUB's tools report on standard error.
	c.errorf("Generating grub configuration file ...\n")

	for _, kernel := range slices.Backward(s.system.Kernels(s.host)) {
		c.errorf("Found linux image: /boot/vmlinuz-%s\nFound initrd image: /boot/initrd.img-%[1]s\n", kernel)
	}

	if !s.this().Firmware.BIOS {
		c.errorf("Adding boot menu entry for UEFI Firmware Settings ...\n")
	}

	c.errorf("done\n")
}

// updateGRUB is update-grub. Where proxmox-boot-tool keeps the loader it hands over to that, as Proxmox' own header of
// GRUB's scripts does.
func (s *Server) updateGRUB(ctx context.Context, c call) error {
	if len(s.system.BootPartitions(s.host)) > 0 {
		c.errorf("Generating grub configuration file ...\nW: This system is booted via proxmox-boot-tool:\n" +
			"W: Executing 'update-grub' directly does not update the correct configs!\nW: Running: 'proxmox-boot-tool refresh'\n\n")

		return s.bootRefresh(ctx, c)
	}

	if err := s.takes(ctx, s.dc.Durations().BootLoader); err != nil {
		return err
	}

	if err := s.write(func() error { return s.system.UpdateGRUB(s.this()) }); err != nil {
		c.errorf("Generating grub configuration file ...\n/usr/sbin/grub-mkconfig: %s\n", reason(err))

		return interp.ExitStatus(statusFailed)
	}

	s.sayGRUB(c)

	return nil
}

func (s *Server) bootRefresh(ctx context.Context, c call) error {
	c.printf("Running hook script 'proxmox-auto-removal'..\nRunning hook script 'zz-proxmox-boot'..\n")

	return s.syncESP(ctx, c)
}

// bootTool is proxmox-boot-tool.
func (s *Server) bootTool(ctx context.Context, c call) error {
	command := strings.Join(c.words[1:], " ")

	switch command {
	case "refresh":
		return s.bootRefresh(ctx, c)
	case "status", "status --quiet":
		return s.bootStatus(c, command == "status")
	case "kernel list":
		c.printf(
			"Manually selected kernels:\nNone.\n\nAutomatically selected kernels:\n%s\n",
			strings.Join(s.system.Kernels(s.host), "\n"),
		)

		return nil
	default:
		c.errorf(
			"USAGE: /usr/sbin/proxmox-boot-tool <commands> [ARGS]\n       the lab's: kernel list, refresh, status [--quiet]\n",
		)

		return interp.ExitStatus(statusFailed)
	}
}

func (s *Server) bootStatus(c call, loud bool) error {
	partitions := s.system.BootPartitions(s.host)
	if len(partitions) == 0 {
		if loud {
			c.errorf("E: /etc/kernel/proxmox-boot-uuids does not exist.\n")
		}

		return interp.ExitStatus(statusUsage)
	}

	if !loud {
		return nil
	}

	h, mode, loader := s.this(), "uefi", "uefi"
	if h.Firmware.BIOS {
		mode = "legacy bios"
	}

	if h.Loader == datacentre.LoaderGRUB {
		loader = "grub"
	}

	c.printf(
		"Re-executing '/usr/sbin/proxmox-boot-tool' in new private mount namespace..\nSystem currently booted with %s\n",
		mode,
	)

	for _, id := range partitions {
		c.printf("%s is configured with: %s (versions: %s)\n", id, loader, strings.Join(s.system.Kernels(s.host), ", "))
	}

	return nil
}

// efibootmgr lists the firmware's entries, of which it has started the first.
func (s *Server) efibootmgr(_ context.Context, c call) error {
	h := s.this()

	name, file := "Linux Boot Manager", `systemd\systemd-bootx64.efi`

	switch {
	case h.Firmware.BIOS:
		c.errorf("EFI variables are not supported on this system.\n")

		return interp.ExitStatus(statusUsage)
	case h.Loader == datacentre.LoaderGRUB && h.Firmware.SecureBoot:
		name, file = "proxmox", `proxmox\shimx64.efi`
	case h.Loader == datacentre.LoaderGRUB:
		name, file = "proxmox", `proxmox\grubx64.efi`
	}

	const partition = "HD(2,GPT,7c1d2f0e-6a39-4f0b-9d52-1f0c6f6c2a11,0x800,0x200000)"

	c.printf("BootCurrent: 0001\nTimeout: 1 seconds\nBootOrder: 0001,0002\nBoot0001* %s\t%s/\\EFI\\%s\nBoot0002* UEFI OS\t%[2]s/\\EFI\\BOOT\\BOOTX64.EFI\n",
		name, partition, file)

	return nil
}

func (s *Server) mokutil(_ context.Context, c call) error {
	h := s.this()

	switch {
	case len(c.words) != 2 || c.words[1] != "--sb-state":
		c.errorf("mokutil: the lab's knows --sb-state\n")

		return interp.ExitStatus(statusFailed)
	case h.Firmware.BIOS:
		c.errorf("EFI variables are not supported on this system\n")

		return interp.ExitStatus(statusOfPVE)
	case h.Firmware.SecureBoot:
		c.printf("SecureBoot enabled\n")
	default:
		c.printf("SecureBoot disabled\n")
	}

	return nil
}
