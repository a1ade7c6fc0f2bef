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
			Reason: "Proxmox refuses raw PCI ids, USB devices without a mapping, ROM files, KVM arguments, CPU affinity and architecture, hugepages and hook scripts from any token, even " +
				"root's, in the middle of the run.",
			Stack: rootOnlyFields,
		},
	}
}

func rootOnlyFields(p plan) problem.List {
	var found problem.List

	for _, r := range p.ofType(tokens.VirtualMachine) {
		if !hasToken(r.Provider) {
			continue
		}

		for _, field := range rootOnlyFieldsOf(r) {
			found = append(found, violation(r.URN, r.Name,
				"%s; Proxmox takes that from root@pam with a password only, and the provider has an API token",
				field))
		}
	}

	return found
}

// hasToken reports whether a provider is known to use an API token.
func hasToken(provider value) bool { return provider.at("apiToken").isSet() }

// rootOnlyFieldsOf returns the fields of a VM that only root may set, each with advice.
func rootOnlyFieldsOf(r resource) []string {
	var fields []string

	devices, _ := r.at("hostpcis").items()
	for i, d := range devices {
		if d.at("id").isSet() {
			fields = append(
				fields,
				fmt.Sprintf(
					"hostpcis[%d].id is the raw PCI id %q: use a mapping, which a token may (hostpcis[%d].mapping)",
					i,
					d.at("id").text().Value, i,
				),
			)
		}

		if d.at("romFile").isSet() {
			fields = append(fields, fmt.Sprintf("hostpcis[%d].romFile is %q: leave it out", i, d.at("romFile").text().Value))
		}
	}

	usbs, _ := r.at("usbs").items()
	for i, d := range usbs {
		if host := d.at("host"); host.isSet() && !strings.EqualFold(host.text().Value, "spice") {
			fields = append(fields, fmt.Sprintf(
				"usbs[%d].host is the USB device %q: use a mapping, which a token may (usbs[%[1]d].mapping)", i, host.text().Value,
			))
		}
	}

	for _, path := range [][]string{
		{"kvmArguments"}, {"cpu", "affinity"}, {"cpu", "architecture"}, {"memory", "hugepages"}, {"hookScriptFileId"},
	} {
		if field := r.at(path...); field.isSet() {
			fields = append(fields, fmt.Sprintf("%s is %q: leave it out", strings.Join(path, "."), field.text().Value))
		}
	}

	return fields
}
