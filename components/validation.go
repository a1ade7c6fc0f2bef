package components

import (
	"cmp"
	"encoding"
	"fmt"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// Sources of images and templates.
const (
	SourceImage  = string(spec.SourceImage)  // a disk image, from which a template is built in the host's shell
	SourceImport = string(spec.SourceImport) // a disk image, from which a template is built through the API
	SourceISO    = string(spec.SourceISO)    // an ISO from which a machine installs itself; needs the API only
)

type (
	// Talos is the Talos of a machine.
	Talos = spec.Talos
	// Encryption are the keys of a node's volumes.
	Encryption = spec.Encryption
	// APIServer are the settings of a cluster's API servers.
	APIServer = spec.APIServer
	// OIDC is the identity provider whose users may log in.
	OIDC = spec.OIDC
	// AuditPolicy is what is written to the audit log.
	AuditPolicy = spec.AuditPolicy
	// AuditRule says what is recorded of some requests.
	AuditRule = spec.AuditRule
	// AuditResources are resources of an API group.
	AuditResources = spec.AuditResources
	// PodSecurity is what pods may do.
	PodSecurity = spec.PodSecurity
	// Registries are how nodes pull images.
	Registries = spec.Registries
	// RegistryMirror are the mirrors of a registry.
	RegistryMirror = spec.RegistryMirror
	// RegistryAuth is a user of a registry.
	RegistryAuth = spec.RegistryAuth
	// RegistryTLS is how the certificate of a registry is verified.
	RegistryTLS = spec.RegistryTLS
	// Tailscale is the tailnet that nodes join.
	Tailscale = spec.Tailscale
	// Firewall is Talos' firewall on all nodes of a cluster.
	Firewall = spec.Firewall
	// ProxmoxFirewall is Proxmox' firewall in front of the machines of a cluster.
	ProxmoxFirewall = spec.ProxmoxFirewall
)

func talosWithDefaults(t Talos) Talos {
	t.Platform = cmp.Or(t.Platform, spec.DefaultPlatform)

	return t
}

// problemsOf returns the problems of a component's arguments as an error; nil = none.
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

// textOf returns an address or network as text; empty = it is not set.
func textOf(value encoding.TextMarshaler) string {
	text, _ := value.MarshalText() // those of [net/netip] have no errors

	return string(text)
}

// requiredAddress reports an address or network that is missing.
func requiredAddress(found *problem.List, path string, value interface{ IsValid() bool }, remedy string) {
	if !value.IsValid() {
		found.Add(path, nil, "is missing; set %s", remedy)
	}
}

func checkVersion(found *problem.List, path, value string) {
	if _, err := talos.ReleaseOf(value); err != nil {
		found.Add(path, value, "cannot be used: %s", err)
	}
}

func checkSource(found *problem.List, path, value string) {
	if !slices.Contains([]string{SourceImage, SourceImport, SourceISO}, value) {
		found.Add(path, value, "is not a source; choose %s", spec.Sources)
	}
}
