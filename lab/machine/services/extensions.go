package services

import (
	"fmt"
	"slices"
	"strings"
)

// extensionServices are the services that extensions bring.
var extensionServices = map[string]string{
	"qemu-guest-agent": "ext-qemu-guest-agent", "iscsi-tools": "ext-iscsid", "tailscale": "ext-tailscale",
	"nvidia-container-toolkit-lts": Persistenced, "nvidia-container-toolkit-production": Persistenced,
	"cloudflared": "ext-cloudflared", "nut-client": "ext-nut-client",
}

// Persistenced is the service of NVIDIA's container toolkit, which its driver starts.
const Persistenced = "ext-nvidia-persistenced"

// needsConfig run only with an ExtensionServiceConfig document.
var needsConfig = map[string]bool{"ext-tailscale": true, "ext-cloudflared": true, "ext-nut-client": true}

// IsExtension says that a service is one of an extension.
func IsExtension(name string) bool { return strings.HasPrefix(name, "ext-") }

// StartSystem starts what does not depend on other machines; pods have a runtime once there is a configuration.
func (s *Services) StartSystem(configured bool) {
	for _, name := range []string{"auditd", "containerd", "cri", "dashboard", "machined", "syslogd", "udevd"} {
		if configured || name != "cri" {
			s.Set(name, Running, "Health check successful")
		}
	}
}

// StartExtensions starts the services of extensions, by their short names, or says what they wait for. Documents are
// the names of the ExtensionServiceConfigs that the machine has, persistenced starts NVIDIA's.
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

// WaitingExtensions are the services of extensions that have not come up: Talos does not finish its boot before they have.
func (s *Services) WaitingExtensions() []string {
	var names []string

	for _, one := range s.List() {
		if IsExtension(one.Name) && one.State == Waiting {
			names = append(names, one.Name)
		}
	}

	return names
}
