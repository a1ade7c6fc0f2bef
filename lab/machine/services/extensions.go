package services

import (
	"fmt"
	"slices"
	"strings"
)

// extensionServices maps extensions to their services.
var extensionServices = map[string]string{
	"qemu-guest-agent": "ext-qemu-guest-agent", "iscsi-tools": "ext-iscsid", "tailscale": "ext-tailscale",
	"nvidia-container-toolkit-lts": Persistenced, "nvidia-container-toolkit-production": Persistenced,
	"cloudflared": "ext-cloudflared", "nut-client": "ext-nut-client",
}

// Persistenced is the service of NVIDIA's container toolkit, which needs the driver.
const Persistenced = "ext-nvidia-persistenced"

// needsConfig are services that run only with an ExtensionServiceConfig document.
var needsConfig = map[string]bool{"ext-tailscale": true, "ext-cloudflared": true, "ext-nut-client": true}

// IsExtension reports whether a service belongs to an extension.
func IsExtension(name string) bool { return strings.HasPrefix(name, "ext-") }

// StartSystem starts the services that do not depend on other machines; the CRI starts only with a configuration.
func (s *Services) StartSystem(configured bool) {
	for _, name := range []string{"auditd", "containerd", "cri", "dashboard", "machined", "syslogd", "udevd"} {
		if configured || name != "cri" {
			s.Set(name, Running, "Health check successful")
		}
	}
}

// StartExtensions starts the services of extensions, given by short name, or sets what they wait for. Documents are the
// names of the machine's ExtensionServiceConfigs, persistenced starts NVIDIA's service.
func (s *Services) StartExtensions(
	extensions, documents []string, persistenced func(name string) (running bool, message string),
) {
	for _, extension := range extensions {
		switch name := extensionServices[extension]; {
		case name == "":
		case name == Persistenced:
			state := Waiting

			running, message := persistenced(name)
			if running {
				state = Running
			}

			s.Set(name, state, message)
		case needsConfig[name] && !slices.Contains(documents, strings.TrimPrefix(name, "ext-")):
			s.Set(name, Waiting, fmt.Sprintf("Waiting for extension service config %q", strings.TrimPrefix(name, "ext-")))
		default:
			s.Set(name, Running, "Started task "+name)
		}
	}
}

// WaitingExtensions returns the services of extensions that are not up: Talos does not finish its boot without them.
func (s *Services) WaitingExtensions() []string {
	var names []string

	for _, svc := range s.List() {
		if IsExtension(svc.Name) && svc.State == Waiting {
			names = append(names, svc.Name)
		}
	}

	return names
}
