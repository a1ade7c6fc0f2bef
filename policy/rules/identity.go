package rules

import (
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
)

func identityPolicies() []policy {
	return []policy{
		{
			Name:        "vmid-ranges",
			Description: "Every VMID is in the range of its role.",
			Reason: "Ranges separate stacks, templates and other machines on one Proxmox. They are set by `talos-proxmox:vmidRanges`, by default " +
				"900-999 for templates, 2000-2999 for control planes, 3000-3999 for workers, 4000-4999 for GPU workers and 5000-5999 for plain machines.",
			Stack: vmidRanges,
		},
		{
			Name:        "unique-vmids",
			Description: "No two machines or templates have the same VMID.",
			Reason:      "Otherwise Proxmox refuses the second one in the middle of the run.",
			Stack:       uniqueVMIDs,
		},
		{
			Name:        "unique-macs",
			Description: "No two network devices have the same MAC address.",
			Reason:      "Two machines with the same MAC address receive each other's packets and leases, and nothing reports it.",
			Stack:       uniqueMACs,
		},
		{
			Name:        "unique-addresses",
			Description: "No two machines have the same address.",
			Reason:      "With the same address, either machine may answer, and one may receive the other's configuration.",
			Stack:       uniqueAddresses,
		},
	}
}

func vmidRanges(p plan) problem.List {
	var found problem.List

	judge := func(urn, name string, role spec.RangeKind, id int) {
		if r := p.Ranges[role]; id != 0 && !r.Holds(id) {
			found = append(found, refuse(urn, name,
				"VMID %d is outside %s, the range of %s: choose one inside it, or change talos-proxmox:vmidRanges.%s",
				id, r, role, role))
		}
	}

	for _, m := range p.machines() {
		if role := m.role(); role != "" && m.VMID.Known {
			judge(m.URN, m.Name, role, m.VMID.Value)
		}
	}

	for _, t := range p.templates() {
		judge(t.urn, t.name, spec.RangeTemplates, t.id)
	}

	return found
}

// role is what range the machine's VMID belongs to, empty while its tags are not known, and for machines of
// others.
func (m machine) role() spec.RangeKind {
	switch {
	case m.tagged(tagControlPlane):
		return spec.RangeControlPlanes
	case m.below(tokens.CloudMachine):
		return spec.RangeMachines
	case !m.tagged(tagWorker) || !m.DevicesKnown:
		return ""
	case len(m.Devices) > 0:
		return spec.RangeGPUWorkers
	default:
		return spec.RangeWorkers
	}
}

// template is a golden template: one that the program's component builds, or a VM registered as one.
type template struct {
	urn, name string
	id        int
}

func (p plan) templates() []template {
	var list []template

	for _, r := range p.of(tokens.GoldenTemplate) {
		list = append(list, template{r.URN, r.Name, r.at("vmid").number().Value})
	}

	for _, r := range p.of(tokens.VirtualMachine) {
		if m := readMachine(r); is(m.Template, true) {
			list = append(list, template{m.URN, m.Name, m.VMID.Value})
		}
	}

	return list
}

// claim is something that only one resource may have.
type claim struct{ urn, name, value string }

// doubles finds what is claimed more than once; the report goes to the later one and names the earlier.
func doubles(what, way string, claims []claim) problem.List {
	first := map[string]claim{}

	var found problem.List

	// Resources come in the order in which they were registered, which differs from run to run.
	slices.SortStableFunc(claims, func(a, b claim) int { return strings.Compare(a.name, b.name) })

	for _, c := range claims {
		if earlier, taken := first[c.value]; taken {
			found = append(found, refuse(c.urn, c.name,
				"%s %s is that of %s too: %s", what, c.value, earlier.name, way))
		} else {
			first[c.value] = c
		}
	}

	return found
}

func uniqueVMIDs(p plan) problem.List {
	var claims []claim

	for _, m := range p.machines() {
		if m.VMID.Value != 0 {
			claims = append(claims, claim{m.URN, m.Name, strconv.Itoa(m.VMID.Value)})
		}
	}

	for _, t := range p.templates() {
		if t.id != 0 {
			claims = append(claims, claim{t.urn, t.name, strconv.Itoa(t.id)})
		}
	}

	return doubles("VMID", "give one of them another", claims)
}

func uniqueMACs(p plan) problem.List {
	var claims []claim

	for _, m := range p.machines() {
		for _, mac := range m.MACs {
			claims = append(claims, claim{m.URN, m.Name, mac})
		}
	}

	return doubles("MAC address", "choose another, like 02:00:00:00:00:01, or none", claims)
}

func uniqueAddresses(p plan) problem.List {
	var claims []claim

	for _, m := range p.machines() {
		for _, address := range m.Addresses {
			claims = append(claims, claim{m.URN, m.Name, address})
		}
	}

	// A machine and its own configuration have one address; two configurations must not.
	var nodes []claim

	for _, r := range p.of(tokens.ConfigurationApply) {
		if address, ok := parseAddress(r.at("node").text().Value); ok {
			nodes = append(nodes, claim{r.URN, r.Name, address})
		}
	}

	const way = "give one of them another"

	return append(doubles("address", way, claims), doubles("address", way, nodes)...)
}
