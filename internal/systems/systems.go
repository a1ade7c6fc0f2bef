// Package systems describes the operating systems other than Talos for golden templates: their releases, published
// images and checksums, and hardware.
package systems

import (
	"slices"
	"strings"
)

// Name is the name of an operating system in stack files.
type Name string

// The operating systems.
const (
	Debian  Name = "debian"
	Ubuntu  Name = "ubuntu"
	Arch    Name = "arch"
	NixOS   Name = "nixos"
	Windows Name = "windows"
)

// Format is the form in which a system is distributed.
type Format string

// The formats. A disk image is imported and booted once with a seed; a backup is restored unchanged; the user provides
// an installation medium, which installs the system with an answer file.
const (
	DiskImage Format = "image"
	Backup    Format = "backup"
	Medium    Format = "medium"
)

// System is an operating system.
type System struct {
	Name   Name
	Title  string // for users: Debian
	Format Format
	// Releases are the known releases, the newest first.
	Releases []Release
	Hardware Hardware
	// Timezone and Locale are the defaults.
	Timezone, Locale string
	// User is cloud-init's default user.
	User string
	// Packages reports whether the build can install additional packages.
	Packages bool
	// MinDiskGiB and MinMemoryMiB are the minimum size of a template.
	MinDiskGiB, MinMemoryMiB int
	// Minutes is the time limit of a build.
	Minutes int
}

// Release is a release of an operating system.
type Release struct {
	// Name is the name in stack files: 13, 24.04, server-2025.
	Name string
	// Image is the URL of a build's image, with {build} in place of the build; empty = the user provides it.
	Image string
	// Sums is the URL of a build's published checksums, Algorithm their algorithm.
	Sums, Algorithm string
}

// Hardware is the hardware that a system needs, in Proxmox' terms.
type Hardware struct {
	// The kind of system. Default: l26.
	OSType string `pulumi:"osType,optional"`
	// The machine type. Default: q35.
	Machine string `pulumi:"machine,optional"`
	// The firmware, ovmf or seabios. Default: ovmf.
	BIOS string `pulumi:"bios,optional"`
	// The interface of the template's system disk. Default: scsi0.
	SystemDisk string `pulumi:"systemDisk,optional"`
	// The interface of the cloud-init drive. Kernels of cloud images do not see one at ide2. Default: scsi1.
	CloudInitDrive string `pulumi:"cloudInitDrive,optional"`
	// The display. Default: serial0, a console without graphics.
	Display string `pulumi:"display,optional"`
	// Whether Secure Boot is enabled. Default: false.
	SecureBoot bool `pulumi:"secureBoot,optional"`
	// CloudInitType is the format of the cloud-init drive: nocloud, configdrive2.
	CloudInitType string
	// SignedBoot reports whether Secure Boot accepts the system's boot loader.
	SignedBoot bool
	// TPM reports whether machines have a TPM 2.0.
	TPM bool
}

// Find returns a system by its name.
func Find(name Name) (System, bool) {
	all := All()

	i := slices.IndexFunc(all, func(s System) bool { return s.Name == name })
	if i < 0 {
		return System{}, false
	}

	return all[i], true
}

// Release returns a release by its name.
func (s System) Release(name string) (Release, bool) {
	i := slices.IndexFunc(s.Releases, func(r Release) bool { return r.Name == name })
	if i < 0 {
		return Release{}, false
	}

	return s.Releases[i], true
}

// URL returns the URL of a build's image; empty = the user provides it.
func (r Release) URL(build string) string { return strings.ReplaceAll(r.Image, "{build}", build) }

// SumsURL returns the URL of a build's published checksums; empty = there are none.
func (r Release) SumsURL(build string) string { return strings.ReplaceAll(r.Sums, "{build}", build) }
