package systems

// Algorithms of published checksums.
const (
	sha256 = "sha256"
	sha512 = "sha512"
)

// linuxHardware returns the hardware for cloud images. Their kernels do not see an IDE cloud-init drive under OVMF, so
// it is a SCSI one.
func linuxHardware(signed bool) Hardware {
	return Hardware{
		OSType: "l26", Machine: "q35", BIOS: "ovmf", SystemDisk: "scsi0", CloudInitDrive: "scsi1",
		CloudInitType: "nocloud", Display: "serial0", SignedBoot: signed,
	}
}

const (
	debianImages = "https://cloud.debian.org/images/cloud/"
	ubuntuImages = "https://cloud-images.ubuntu.com/releases/"
	archImages   = "https://geo.mirror.pkgbuild.com/images/v{build}/"
	archImage    = archImages + "Arch-Linux-x86_64-cloudimg-{build}.qcow2"
)

func debianRelease(version, name string) Release {
	folder := debianImages + name + "/{build}/"

	return Release{
		Name: version, Image: folder + "debian-" + version + "-genericcloud-amd64-{build}.qcow2",
		Sums: folder + "SHA512SUMS", Algorithm: sha512,
	}
}

func ubuntuRelease(version, name string) Release {
	folder := ubuntuImages + name + "/release-{build}/"

	return Release{
		Name: version, Image: folder + "ubuntu-" + version + "-server-cloudimg-amd64.img",
		Sums: folder + "SHA256SUMS", Algorithm: sha256,
	}
}

// All returns the systems, in the order of the documentation.
func All() []System {
	return []System{
		{
			Name: Debian, Title: "Debian", Format: DiskImage, User: "debian", Packages: true, Hardware: linuxHardware(true),
			Releases: []Release{debianRelease("13", "trixie"), debianRelease("12", "bookworm")},
			Timezone: "Etc/UTC", Locale: noLocale, MinDiskGiB: 5, MinMemoryMiB: 1024, Minutes: 15,
		},
		{
			Name: Ubuntu, Title: "Ubuntu", Format: DiskImage, User: "ubuntu", Packages: true, Hardware: linuxHardware(true),
			Releases: []Release{ubuntuRelease("26.04", "resolute"), ubuntuRelease("24.04", "noble"), ubuntuRelease("22.04", "jammy")},
			Timezone: "Etc/UTC", Locale: noLocale, MinDiskGiB: 6, MinMemoryMiB: 1024, Minutes: 15,
		},
		{
			Name: Arch, Title: "Arch Linux", Format: DiskImage, User: "arch", Packages: true, Hardware: linuxHardware(false),
			Releases: []Release{{Name: "rolling", Image: archImage, Sums: archImage + ".SHA256", Algorithm: sha256}},
			Timezone: "Etc/UTC", Locale: noLocale, MinDiskGiB: 6, MinMemoryMiB: 1024, Minutes: 15,
		},
		{
			// The VMA from Hydra defines its hardware: nixos/modules/virtualisation/proxmox-image.nix of nixpkgs. Its builds
			// have no permanent URL.
			Name: NixOS, Title: "NixOS", Format: Backup, User: "root",
			Hardware: Hardware{
				OSType: "l26", Machine: "pc", BIOS: "seabios", SystemDisk: "virtio0", CloudInitDrive: "ide2",
				CloudInitType: "nocloud", Display: "serial0",
			},
			Releases:   []Release{{Name: "26.05"}, {Name: "25.11"}},
			MinDiskGiB: 5, MinMemoryMiB: 1024, Minutes: 30,
		},
		{
			Name: Windows, Title: "Windows", Format: Medium, User: "Administrator",
			Hardware: Hardware{
				OSType: "win11", Machine: "q35", BIOS: "ovmf", SystemDisk: "scsi0", CloudInitDrive: "ide2",
				CloudInitType: "configdrive2", Display: "std", SignedBoot: true, TPM: true,
			},
			Releases: []Release{{Name: "server-2025"}, {Name: "server-2022"}, {Name: "11"}},
			Timezone: "UTC", Locale: "en-US", MinDiskGiB: 40, MinMemoryMiB: 4096, Minutes: 90,
		},
	}
}
