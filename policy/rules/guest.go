package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

func guestPolicies() []policy {
	return []policy{
		{
			Name:        "no-cloud-init-on-talos",
			Description: "Talos machines get no cloud-init user data, no user, no SSH keys and no password.",
			Reason: "Talos has no shell, users or SSH: it ignores such data, which is readable in Proxmox, or treats it as a machine " +
				"configuration. Addresses (network data) are allowed.",
			Stack: cloudInit,
		},
		{
			Name:        "agent-needs-extension",
			Description: "The guest agent is enabled only if the image includes it.",
			Reason: "Proxmox waits for the agent at every start, stop and read of a machine whose image lacks the extension siderolabs/qemu-guest-agent, and " +
				"a shutdown fails.",
			Stack: agentExtension,
		},
	}
}

func cloudInit(p plan) problem.List {
	var found problem.List

	for _, m := range p.machines() {
		if !m.talos() {
			continue
		}

		initialization := m.at("initialization")

		var fields []string

		for _, path := range [][]string{
			{"userDataFileId"},
			{"vendorDataFileId"},
			{"userAccount", "username"},
			{"userAccount", "password"},
		} {
			if initialization.at(path...).given() {
				fields = append(fields, "initialization."+strings.Join(path, "."))
			}
		}

		if keys, _ := initialization.at("userAccount", "keys").items(); len(keys) > 0 {
			fields = append(fields, "initialization.userAccount.keys")
		}

		if len(fields) > 0 {
			found = append(found, refuse(m.URN, m.Name,
				"%s is set on a Talos machine: leave it out, and configure the machine by its machine configuration",
				strings.Join(fields, " and ")))
		}
	}

	return found
}

// extension that answers the calls of QEMU's guest agent.
const extension = "siderolabs/qemu-guest-agent"

// agentExtension follows a machine's installer image to the schematic of the plan that it was made from. Where that way
// is not known nothing is said.
func agentExtension(p plan) problem.List {
	schematics := p.schematics()

	var found problem.List

	for _, m := range p.machines() {
		if !is(m.Agent, true) || !m.talos() {
			continue
		}

		for _, r := range p.of(tokens.ConfigurationApply) {
			if r.Parent != m.Parent || !r.below(tokens.Nodes) {
				continue
			}

			for _, image := range p.installers(r) {
				extensions, ok := schematics[schematicOf(image)]
				if ok && !slices.Contains(extensions, extension) {
					found = append(found, refuse(m.URN, m.Name,
						"agent.enabled is true, and its image has no %s (extensions: %s): add the extension to the template, or set agent.enabled to false",
						extension, strings.Join(extensions, ", ")))
				}
			}
		}
	}

	return found
}

// schematics are the extensions of the plan's schematics by their id: the one that the Factory gave, or the digest that
// it will give.
func (p plan) schematics() map[string][]string {
	all := map[string][]string{}

	for _, r := range p.of(tokens.Schematic) {
		text := r.at("schematic").text()

		var file struct {
			Customization struct {
				SystemExtensions struct {
					Official []string `yaml:"officialExtensions"`
				} `yaml:"systemExtensions"`
			}
		}

		if text.Value == "" || yaml.Unmarshal([]byte(text.Value), &file) != nil {
			continue
		}

		all[digest(text.Value)] = file.Customization.SystemExtensions.Official
	}

	return all
}

// schematicOf reads the schematic's id from an installer: factory.talos.dev/nocloud-installer/<id>:<version>.
func schematicOf(image string) string {
	image, _, _ = strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")

	return image
}
