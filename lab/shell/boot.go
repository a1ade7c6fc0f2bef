package shell

import (
	"context"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

// updateInitramfs implements update-initramfs -u -k all.
func (s *Server) updateInitramfs(ctx context.Context, c call) error {
	if strings.Join(c.words[1:], " ") != "-u -k all" {
		return usageError{"usage: the lab's update-initramfs supports -u -k all"}
	}

	for _, kernel := range slices.Backward(s.system.Kernels(s.currentHost())) {
		c.printf("update-initramfs: Generating /boot/initrd.img-%s\n", kernel)

		if err := s.sleep(ctx, s.dc.Durations().Initramfs); err != nil {
			return err
		}

		if err := s.withWritableDisk(func() error { return s.system.UpdateInitramfs(s.currentHost(), kernel) }); err != nil {
			c.errorf(
				"E: mkinitramfs failure: %s\nupdate-initramfs: failed for /boot/initrd.img-%s with 1.\n", strerror(err), kernel,
			)

			return interp.ExitStatus(statusFailed)
		}
	}

	// Proxmox' hook copies the images to the EFI system partition.
	return s.syncESP(ctx, c)
}

// syncESP is Proxmox' hook for new kernels and images.
func (s *Server) syncESP(ctx context.Context, c call) error {
	partitions := s.system.BootPartitions(s.currentHost())
	if len(partitions) == 0 {
		c.printf("No /etc/kernel/proxmox-boot-uuids found, skipping ESP sync.\n")

		return nil
	}

	if err := s.sleep(ctx, s.dc.Durations().BootLoader); err != nil {
		return err
	}

	for _, id := range partitions {
		c.printf("Copying and configuring kernels on /dev/disk/by-uuid/%s\n", id)
	}

	if err := s.system.RefreshESP(s.currentHost()); err != nil {
		c.errorf("%s\n", strerror(err))

		return interp.ExitStatus(statusFailed)
	}

	return nil
}

// updateGRUB implements update-grub. If proxmox-boot-tool manages the boot loader, it calls that, like Proxmox' header
// in GRUB's scripts.
func (s *Server) updateGRUB(ctx context.Context, c call) error {
	c.errorf("Generating grub configuration file ...\n") // GRUB's tools print to standard error

	if len(s.system.BootPartitions(s.currentHost())) > 0 {
		c.errorf("W: This system is booted via proxmox-boot-tool:\n" +
			"W: Executing 'update-grub' directly does not update the correct configs!\nW: Running: 'proxmox-boot-tool refresh'\n\n")

		return s.syncESP(ctx, c)
	}

	if err := s.sleep(ctx, s.dc.Durations().BootLoader); err != nil {
		return err
	}

	if err := s.withWritableDisk(func() error { return s.system.UpdateGRUB(s.currentHost()) }); err != nil {
		c.errorf("/usr/sbin/grub-mkconfig: %s\n", strerror(err))

		return interp.ExitStatus(statusFailed)
	}

	c.errorf("done\n")

	return nil
}

// bootTool implements proxmox-boot-tool refresh and status.
func (s *Server) bootTool(ctx context.Context, c call) error {
	switch strings.Join(c.words[1:], " ") {
	case "refresh":
		return s.syncESP(ctx, c)
	case "status":
		return s.bootStatus(c)
	default:
		return usageError{"USAGE: /usr/sbin/proxmox-boot-tool <commands> [ARGS]\n       the lab supports refresh, status"}
	}
}

func (s *Server) bootStatus(c call) error {
	partitions := s.system.BootPartitions(s.currentHost())
	if len(partitions) == 0 {
		c.errorf("E: /etc/kernel/proxmox-boot-uuids does not exist.\n")

		return interp.ExitStatus(statusUsage)
	}

	loader := "uefi"
	if s.currentHost().Loader == datacentre.LoaderGRUB {
		loader = "grub"
	}

	c.printf("System currently booted with uefi\n")

	for _, id := range partitions {
		c.printf("%s is configured with: %s (versions: %s)\n", id, loader, strings.Join(s.system.Kernels(s.currentHost()), ", "))
	}

	return nil
}

// efibootmgr lists the firmware's entries; the first one was booted.
func (s *Server) efibootmgr(c call, h datacentre.Host) error {
	name, file := "Linux Boot Manager", `systemd\systemd-bootx64.efi`

	switch {
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
