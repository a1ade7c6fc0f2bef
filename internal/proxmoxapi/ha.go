package proxmoxapi

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/request"
)

// HAResource is a resource of Proxmox' high availability.
type HAResource struct {
	ID          string `json:"sid"` // vm:100
	MaxRestart  int    `json:"max_restart"`
	MaxRelocate int    `json:"max_relocate"`
	Comment     string
}

// Types of rules of Proxmox' high availability.
const (
	OnHosts      = "node-affinity"     // resources run on some hosts
	BesideOthers = "resource-affinity" // resources run on one host, or on different ones
)

// Affinities of rules of type [BesideOthers].
const (
	Apart    = "negative"
	Together = "positive"
)

// HARule is a rule of Proxmox' high availability.
type HARule struct {
	Name      string  `json:"rule"`
	Type      string  // OnHosts, BesideOthers
	Resources string  // vm:100,vm:101
	Nodes     string  // of hosts: pve1,pve2:1
	Strict    Boolean // no other hosts, even if none of these is online
	Affinity  string  // Apart, Together
	Disable   Boolean
	Digest    string
}

// Has reports whether the rule is in force and names a VM.
func (r HARule) Has(vmid int) bool {
	return !bool(r.Disable) && slices.Contains(strings.Split(r.Resources, ","), HAResourceID(vmid))
}

// does reports whether two rules do the same.
func (r HARule) does(other HARule) bool {
	sorted := func(list string) []string { return slices.Sorted(strings.SplitSeq(list, ",")) }

	return r.Type == other.Type && r.Strict == other.Strict && r.Affinity == other.Affinity &&
		r.Disable == other.Disable && slices.Equal(sorted(r.Resources), sorted(other.Resources)) &&
		slices.Equal(sorted(r.Nodes), sorted(other.Nodes))
}

// HAChange is a difference between the rule that a machine is to have and Found, which Proxmox has; nil = none.
type HAChange struct {
	Subject string // rule talos-vm-100 (missing)
	Rule    *HARule
	Found   *HARule
}

// HighAvailability is what Proxmox' high availability is configured to do.
type HighAvailability struct {
	Resources map[string]HAResource // by id
	Rules     []HARule
	Jobs      []ReplicationJob
	Hosts     map[int]string // of machines, by VMID
}

// ReadHA reads it, with the replication of disks. It needs Sys.Audit on /, and Proxmox VE 9.
func ReadHA(ctx context.Context, get Get) (h HighAvailability, err error) {
	var resources []HAResource
	if err := get(ctx, PathHAResources, &resources); err != nil {
		return h, Cause(err)
	}

	h.Resources = map[string]HAResource{}
	for _, r := range resources {
		h.Resources[r.ID] = r
	}

	if err := get(ctx, PathHARules, &h.Rules); err != nil {
		return h, Cause(err)
	}

	return h, h.readReplication(ctx, get)
}

// Differences describes how a machine's high availability differs from what the machine is to have.
func (h HighAvailability) Differences(w request.HAMachine) (subjects []string) {
	id := HAResourceID(w.VMID)

	for _, c := range h.Replication(w) {
		subjects = append(subjects, c.Subject)
	}

	found, exists := h.Resources[id]
	if !exists {
		return append(subjects, "resource "+id+" (missing)")
	}

	if found.MaxRestart != w.MaxRestart {
		subjects = append(subjects, fmt.Sprintf("max_restart of %s (%d, planned: %d)", id, found.MaxRestart, w.MaxRestart))
	}

	if found.MaxRelocate != w.MaxRelocate {
		subjects = append(subjects, fmt.Sprintf("max_relocate of %s (%d, planned: %d)", id, found.MaxRelocate, w.MaxRelocate))
	}

	if found.Comment != w.Comment {
		subjects = append(subjects, "comment of "+id)
	}

	changes := []HAChange{h.HostsRule(w)}
	if members := h.apart(w); len(members) == 0 || members[0] == w.VMID { // one names the rule of all
		changes = append(changes, h.ApartRule(w))
	}

	for _, c := range changes {
		if c.Subject != "" {
			subjects = append(subjects, c.Subject)
		}
	}

	return subjects
}

// HostsRule returns what changes at the rule that says on which hosts a machine may run.
func (h HighAvailability) HostsRule(w request.HAMachine) HAChange {
	return h.ruleChange(HARule{
		Name: ownership.HostsRule(w.VMID), Type: OnHosts, Resources: HAResourceID(w.VMID), Nodes: strings.Join(w.Hosts, ","),
		Strict: true,
	}, len(w.Hosts) > 0)
}

// ApartRule returns what changes at the rule that keeps a machine apart from others, of those that are resources.
func (h HighAvailability) ApartRule(w request.HAMachine) HAChange {
	if w.ApartRule == "" {
		return HAChange{}
	}

	var ids []string
	for _, vmid := range h.apart(w) {
		ids = append(ids, HAResourceID(vmid))
	}

	return h.ruleChange(HARule{
		Name: w.ApartRule, Type: BesideOthers, Resources: strings.Join(ids, ","), Affinity: Apart,
	}, len(ids) > 1) // Proxmox refuses a rule with a single machine
}

// apart returns the machines that are kept apart and are resources.
func (h HighAvailability) apart(w request.HAMachine) []int {
	return slices.DeleteFunc(slices.Clone(w.Apart), func(vmid int) bool {
		_, exists := h.Resources[HAResourceID(vmid)]

		return !exists
	})
}

func (h HighAvailability) ruleChange(rule HARule, wanted bool) (c HAChange) {
	at := slices.IndexFunc(h.Rules, func(r HARule) bool { return r.Name == rule.Name })
	if at >= 0 {
		c.Found = &h.Rules[at]
	}

	if wanted {
		c.Rule = &rule
	}

	switch {
	case wanted && c.Found == nil:
		c.Subject = "rule " + rule.Name + " (missing)"
	case !wanted && c.Found != nil:
		c.Subject = "rule " + rule.Name + " (not planned)"
	case wanted && !c.Found.does(rule):
		c.Subject = "rule " + rule.Name
	}

	return c
}

// HAResourceID returns the id of a VM's resource.
func HAResourceID(vmid int) string { return "vm:" + strconv.Itoa(vmid) }

// PathHAResources and PathHARules are the collections of high availability in the API.
const (
	PathHAResources = "/cluster/ha/resources"
	PathHARules     = "/cluster/ha/rules"
)

// HAResourcePath returns the path of a VM's resource.
func HAResourcePath(vmid int) string {
	return PathHAResources + "/" + url.PathEscape(HAResourceID(vmid))
}

// HARulePath returns the path of a rule.
func HARulePath(name string) string { return PathHARules + "/" + url.PathEscape(name) }

// HAService is what Proxmox' high availability makes of a resource. Its state is started, stopped, fence (its host is
// silent, and being fenced), recovery (it waits for another host), error, and so on.
type HAService struct {
	ID    string `json:"sid"` // vm:100
	Type  string `json:"type"`
	Host  string `json:"node"`
	State string `json:"state"`
}

// HAServices returns the resources that Proxmox' high availability manages: also those that are no longer configured,
// for some seconds. It needs Sys.Audit on /.
func HAServices(ctx context.Context, get Get) (services []HAService, err error) {
	if err := get(ctx, "/cluster/ha/status/current", &services); err != nil {
		return nil, Cause(err)
	}

	return slices.DeleteFunc(services, func(s HAService) bool { return s.Type != "service" }), nil // hosts and the like
}
