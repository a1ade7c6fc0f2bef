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

// ImageURL returns the URL of a zstd-compressed raw disk image; version has its v, platform is nocloud or metal.
func (f Factory) ImageURL(id, version, platform string) string {
	return fmt.Sprintf("%s/image/%s/%s/%s-%s.raw.zst", f.Base(), id, version, platform, Arch)
}

// ISOURL returns the URL of a bootable ISO image.
func (f Factory) ISOURL(id, version, platform string) string {
	return fmt.Sprintf("%s/image/%s/%s/%s-%s.iso", f.Base(), id, version, platform, Arch)
}

// Installer returns the container image for machine.install.image and for upgrades. Only the installer of the same
// schematic and platform keeps extensions and nocloud network data across an upgrade.
func (f Factory) Installer(id, version, platform string) string {
	_, host, found := strings.Cut(f.Base(), "://")
	if !found {
		host = f.Base()
	}

	return fmt.Sprintf("%s/%s-installer/%s:%s", host, platform, id, version)
}
