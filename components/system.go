package components

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// Sources of machines: what an image is, and where a machine comes from.
const (
	SourceImage = "image" // a disk image, of which a template is built in the host's shell
	SourceISO   = "iso"   // an ISO, which a machine boots and installs itself from; needs the Proxmox API only
)

// defaultPlatform is Talos' platform of machines whose first network configuration comes from a cloud-init drive.
const defaultPlatform = "nocloud"

// Talos says which Talos a machine runs: what its image holds, and the installer of later upgrades. Source: the Image
// Factory (https://factory.talos.dev), whose schematics have the same fields.
type Talos struct {
	// Talos' version in full, with its v: v1.14.4.
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

// problems are those of a component's arguments, each with the path of its field.
type problems []error

func (p *problems) add(path, format string, values ...any) {
	*p = append(*p, fmt.Errorf("%s: "+format, append([]any{path}, values...)...))
}

// required reports a text that is missing.
func (p *problems) required(path, value, remedy string) {
	if value == "" {
		p.add(path, "is missing; set %s", remedy)
	}
}

func (p *problems) address(path, value string) {
	if _, err := netip.ParseAddr(value); err != nil {
		p.add(path, "%q is not an IP address; use one such as 10.0.0.2", value)
	}
}

var versionForm = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+`)

func (p *problems) version(path, value string) {
	if !versionForm.MatchString(value) {
		p.add(path, "%q is not a version of Talos; write it in full, such as v1.14.4", value)
	}
}

func (p *problems) source(path, value string) {
	if value != SourceImage && value != SourceISO {
		p.add(path, "%q is not a source; choose image or iso", value)
	}
}

// of are all of them, with what they are about; nil = none.
func (p *problems) of(what, name string) error {
	if len(*p) == 0 {
		return nil
	}

	return fmt.Errorf("%s %q: %w", what, name, errors.Join(*p...))
}

func (p *problems) prefix(path, value string) {
	if _, err := netip.ParsePrefix(value); err != nil {
		p.add(path, "%q is not an address with its prefix length; use one such as 10.0.0.10/24", value)
	}
}
