package stacks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
)

// checkHighAvailability compares what Proxmox' high availability does with machines with what the last run made: this
// run repairs the differences. It refuses rules of others that contradict those of the plan, as Proxmox would half-way,
// and warns of machines that others have put into high availability.
func (d *deployment) checkHighAvailability(ctx context.Context) (found problem.List, _ error) {
	members := d.plan.Members()

	listed, err := d.lookup.proxmox.List(ctx)
	if err != nil { // which other checks report
		return nil, nil //nolint:nilerr // see above
	}

	for _, m := range members {
		at := slices.IndexFunc(listed, func(vm proxmoxapi.Listed) bool { return vm.VMID == m.VMID && vm.Name == m.Name })
		if m.HA == nil && at >= 0 && listed[at].HAState != "" && !d.lastRun.has(tokens.LocalCommand, m.Name+tokens.OfHA) {
			found.Warn(m.Path, nil, "%s (VM %d) is in Proxmox' high availability, which the stack file does not have: Proxmox starts "+
				"it whenever a run stops it; set ha, which takes it over, or remove it: `ha-manager remove %s`", m.Name, m.VMID,
				proxmoxapi.HAResourceID(m.VMID))
		}
	}

	managed := slices.DeleteFunc(members, func(m spec.Member) bool { return m.HA == nil })
	if len(managed) == 0 {
		return found, nil
	}

	has, err := proxmoxapi.ReadHA(ctx, d.lookup.proxmox.Get)
	if err != nil {
		found.Warn("", nil, "what Proxmox' high availability does with machines is unknown, and is not compared with the plan: %s", err)

		return found, nil
	}

	d.haDrift = map[string]string{}

	for _, m := range managed {
		d.compareHA(m, has, &found)
		checkRulesOfOthers(m, managed, has, &found)
	}

	return found, nil
}

// compareHA compares a machine's high availability with what the last run made.
func (d *deployment) compareHA(m spec.Member, has proxmoxapi.HighAvailability, found *problem.List) {
	var made request.HAMachine

	name := m.Name + tokens.OfHA
	if json.Unmarshal([]byte(d.lastRun.calls[name].Request), &made) != nil { // there is none yet
		return
	}

	if differences := has.Differences(made); len(differences) > 0 {
		d.haDrift[name] = strings.Join(differences, ", ")
		found.Note(m.Path+".ha", "Proxmox' high availability of %s is not as wanted, up changes %s", m.Name, d.haDrift[name])
	}
}

// checkRulesOfOthers refuses rules with which Proxmox would refuse those of a machine.
func checkRulesOfOthers(m spec.Member, managed []spec.Member, has proxmoxapi.HighAvailability, found *problem.List) {
	for _, rule := range has.Rules {
		if !rule.Has(m.VMID) || rule.Name == ownership.HostsRule(m.VMID) {
			continue
		}

		remove := fmt.Sprintf("remove it: `ha-manager rules remove %s`", rule.Name)

		switch {
		case rule.Type == proxmoxapi.OnHosts && len(m.HA.Hosts) > 0:
			found.Add(m.Path+".ha", nil, "%s is to run on %s, and the rule %q of Proxmox' high availability, which this stack did not make, "+
				"says where it runs as well (%s); Proxmox allows one such rule: %s, or remove hosts", m.Name,
				strings.Join(m.HA.Hosts, ", "), rule.Name, rule.Nodes, remove)
		case rule.Affinity == proxmoxapi.Together && m.HA.Apart:
			other := slices.IndexFunc(managed, func(other spec.Member) bool {
				return other.HA.Apart && other.Of == m.Of && other.VMID != m.VMID && rule.Has(other.VMID)
			})
			if other >= 0 {
				found.Add(m.Path+".ha", nil, "the rule %q of Proxmox' high availability keeps %s and %s on one host, and control planes are "+
					"kept apart: %s", rule.Name, m.Name, managed[other].Name, remove)
			}
		}
	}
}
