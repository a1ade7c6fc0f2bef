package components

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// Sources of machines: what an image is, and where a machine comes from.
const (
	SourceImage = "image" // a disk image, of which a template is built in the host's shell
	SourceISO   = "iso"   // an ISO, which a machine boots and installs itself from; needs the Proxmox API only
)

// defaultPlatform is Talos' platform of machines whose first network configuration comes from a cloud-init drive.
const defaultPlatform = "nocloud"

// Talos is the Talos of a machine: the contents of its image, and of the installer for upgrades. Images come from the
// Image Factory (https://factory.talos.dev), whose schematics have the same fields.
type Talos struct {
	// The full version of Talos, with its v: v1.14.4.
	Version string `pulumi:"version"`
	// Talos' platform. Default: nocloud.
	Platform string `pulumi:"platform,optional"`
	// Official system extensions, by short name (qemu-guest-agent) or in full (siderolabs/qemu-guest-agent).
	Extensions []string `pulumi:"extensions,optional"`
	// Additional kernel arguments, one per entry, in this order.
	KernelArgs []string `pulumi:"kernelArgs,optional"`
}

// SchematicID returns the id of the schematic at the Image Factory, computed offline.
func (t Talos) SchematicID() string { return t.schematic().ID() }

func (t Talos) schematic() talos.Schematic {
	return talos.Schematic{Extensions: t.Extensions, KernelArgs: t.KernelArgs}
}

func (t Talos) withDefaults() Talos {
	t.Platform = cmp.Or(t.Platform, defaultPlatform)

	return t
}

// hasAgent says whether its image answers the QEMU guest agent's calls.
func (t Talos) hasAgent() bool {
	return slices.ContainsFunc(t.Extensions, func(name string) bool {
		return strings.TrimPrefix(name, "siderolabs/") == "qemu-guest-agent"
	})
}

// image is the name of its image from a source.
func (t Talos) image(source string) string {
	return talos.ImageName(t.SchematicID(), t.Version, t.Platform, source == SourceISO)
}

// problemsOf is the error of a component's arguments, with what they are about; nil = nothing is wrong with them.
func problemsOf(what, name string, found *problem.List) error {
	if len(*found) == 0 {
		return nil
	}

	return fmt.Errorf("%s %q: %w", what, name, *found)
}

// required reports a text that is missing.
func required(found *problem.List, path, value, remedy string) {
	if value == "" {
		found.Add(path, nil, "is missing; set %s", remedy)
	}
}

func checkAddress(found *problem.List, path, value string) {
	if _, err := netip.ParseAddr(value); err != nil {
		found.Add(path, value, "is not an IP address; use one such as 10.0.0.2")
	}
}

func checkPrefix(found *problem.List, path, value string) {
	if _, err := netip.ParsePrefix(value); err != nil {
		found.Add(path, value, "is not an address with its prefix length; use one such as 10.0.0.10/24")
	}
}

var versionForm = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+`)

func checkVersion(found *problem.List, path, value string) {
	if !versionForm.MatchString(value) {
		found.Add(path, value, "is not a version of Talos; write it in full, such as v1.14.4")
	}
}

func checkSource(found *problem.List, path, value string) {
	if value != SourceImage && value != SourceISO {
		found.Add(path, value, "is not a source; choose image or iso")
	}
}
