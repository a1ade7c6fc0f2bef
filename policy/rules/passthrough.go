package rules

import (
	"fmt"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

func passthroughPolicies() []policy {
	return []policy{
		{
			Name:        "no-root-only-fields",
			Description: "Machines created with an API token have no field that only root@pam with a password may set.",
			Reason: "Proxmox refuses raw PCI ids, ROM files, KVM arguments, CPU affinity and architecture, hugepages and hook scripts from any token, even " +
				"root's, in the middle of the run.",
			Stack: rootOnlyFields,
		},
	}
}

func rootOnlyFields(p plan) problem.List {
	var found problem.List

	for _, r := range p.of(tokens.VirtualMachine) {
		if !usesToken(r.Provider) {
			continue
		}

		for _, field := range rootFields(r) {
			found = append(found, refuse(r.URN, r.Name,
				"%s; Proxmox takes that from root@pam with a password only, and the provider has an API token",
				field))
		}
	}

	return found
}

// usesToken tells a provider that is known to work with a token.
func usesToken(provider value) bool { return provider.at("apiToken").given() }

// rootFields are the fields of a VM that only root may set, each with what to do instead.
func rootFields(r resource) []string {
	var fields []string

	devices, _ := r.at("hostpcis").items()
	for i, d := range devices {
		if d.at("id").given() {
			fields = append(
				fields,
				fmt.Sprintf(
					"hostpcis[%d].id is the raw PCI id %q: use a mapping, which a token may (hostpcis[%d].mapping)",
					i,
					d.at("id").text().Value, i,
				),
			)
		}

		if d.at("romFile").given() {
			fields = append(fields, fmt.Sprintf("hostpcis[%d].romFile is %q: leave it out", i, d.at("romFile").text().Value))
		}
	}

	for _, path := range [][]string{
		{"kvmArguments"}, {"cpu", "affinity"}, {"cpu", "architecture"}, {"memory", "hugepages"}, {"hookScriptFileId"},
	} {
		if field := r.at(path...); field.given() {
			fields = append(fields, fmt.Sprintf("%s is %q: leave it out", strings.Join(path, "."), field.text().Value))
		}
	}

	return fields
}
