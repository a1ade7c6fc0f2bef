// Package systems knows the operating systems beside Talos that golden templates are made of: their releases, where
// images and checksums are published, and what hardware their machines have.
package systems

import (
	"slices"
	"strings"
)

// Name is the name of an operating system, as stack files write it.
type Name string

// The operating systems.
const (
	Debian  Name = "debian"
	Ubuntu  Name = "ubuntu"
	Arch    Name = "arch"
	NixOS   Name = "nixos"
	Windows Name = "windows"
)

// Format says what is published of a system.
type Format string

// The formats. A disk image is imported and started once with a seed; a backup is restored as it is; an installation
// medium is the user's own, and installs the system by an answer file.
const (
	DiskImage Format = "image"
	Backup    Format = "backup"
	Medium    Format = "medium"
)

// System is an operating system.
type System struct {
	Name   Name
	Title  string // as people write it: Debian
	Format Format
	// Releases are those that are known, the newest first.
	Releases []Release
	Hardware Hardware
	// Timezone and Locale are the defaults.
	Timezone, Locale string
	// User is the one that cloud-init makes where no other is stated.
	User string
	// Packages says whether the build installs packages of the user's choice.
	Packages bool
	// LeastDiskGiB and LeastMemoryMiB are the least that a template can have.
	LeastDiskGiB, LeastMemoryMiB int
	// Minutes is how long a build may take.
	Minutes int
}

// Release is a release of an operating system.
type Release struct {
	// Name is what stack files write: 13, 24.04, server-2025.
	Name string
	// Image is the address of a build's image, with {build} in place of the build; empty = stated by the user.
	Image string
	// Sums is the address of the checksums that are published for a build, Algorithm what they are made with.
	Sums, Algorithm string
}

// Hardware is the hardware that a system needs, with Proxmox' names.
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
	// CloudInitType is the form of the cloud-init drive: nocloud, configdrive2.
	CloudInitType string
	// SignedBoot says whether Secure Boot takes the system's boot loader.
	SignedBoot bool
	// TPM says whether machines have a TPM 2.0.
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

// URL returns the address of a build's image; empty = stated by the user.
func (r Release) URL(build string) string { return strings.ReplaceAll(r.Image, "{build}", build) }

// SumsURL returns the address of the checksums that are published for a build; empty = there are none.
func (r Release) SumsURL(build string) string { return strings.ReplaceAll(r.Sums, "{build}", build) }
