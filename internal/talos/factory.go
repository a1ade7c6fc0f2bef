package talos

import (
	"fmt"
	"strings"
)

// DefaultFactoryURL is the public Image Factory.
const DefaultFactoryURL = "https://factory.talos.dev"

// Arch is the architecture of every machine: Proxmox VE is released for amd64, and only emulates others.
const Arch = "amd64"

// Factory builds URLs of an Image Factory; the zero value is the public one.
type Factory struct {
	// URL without a path; empty = DefaultFactoryURL.
	URL string
}

// Base returns the URL without a path.
func (f Factory) Base() string {
	if f.URL == "" {
		return DefaultFactoryURL
	}

	return strings.TrimRight(f.URL, "/")
}

// Kind is what an image or installer of a schematic and version is made for.
type Kind struct {
	// Platform is nocloud or metal.
	Platform string
	// SecureBoot signs the system with the keys of the Factory.
	SecureBoot bool
}

// suffix is that of the names of images and installers.
func (k Kind) suffix() string {
	if k.SecureBoot {
		return "-secureboot"
	}

	return ""
}

// ImageURL returns the URL of a zstd-compressed raw disk image; version has its v.
func (f Factory) ImageURL(id, version string, kind Kind) string {
	return f.imageURL(id, version, kind) + ".raw.zst"
}

// QCOW2URL returns the URL of a disk image as a QCOW2 file.
func (f Factory) QCOW2URL(id, version string, kind Kind) string {
	return f.imageURL(id, version, kind) + ".qcow2"
}

// ISOURL returns the URL of a bootable ISO image.
func (f Factory) ISOURL(id, version string, kind Kind) string {
	return f.imageURL(id, version, kind) + ".iso"
}

func (f Factory) imageURL(id, version string, kind Kind) string {
	return fmt.Sprintf("%s/image/%s/%s/%s-%s%s", f.Base(), id, version, kind.Platform, Arch, kind.suffix())
}

// Installer returns the container image for machine.install.image and for upgrades. Only the installer of the same
// schematic and kind keeps extensions, nocloud network data and Secure Boot across an upgrade.
func (f Factory) Installer(id, version string, kind Kind) string {
	_, host, found := strings.Cut(f.Base(), "://")
	if !found {
		host = f.Base()
	}

	return fmt.Sprintf("%s/%s-installer%s/%s:%s", host, kind.Platform, kind.suffix(), id, version)
}

// IsSecureBoot reports whether an installer, as [Factory.Installer] names it, is for Secure Boot.
func IsSecureBoot(installer string) bool {
	return strings.Contains(installer, "-installer"+Kind{SecureBoot: true}.suffix()+"/")
}
