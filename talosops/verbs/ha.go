package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const haHelp = `Has Proxmox' high availability restart a machine (docs/high-availability.md).

The machine becomes a resource that Proxmox starts after every failure, on another host if its own is dead. A rule says
on which hosts it may run, if not on all; another keeps the control planes of a cluster apart. What is there already is
changed. Whether the machine is to run is only said of a new resource.

With --remove, Proxmox forgets the machine, and the verb waits for that: until then, Proxmox would start a machine that
is switched off.`

// haRequest has a secret: the credentials for Proxmox.
type haRequest struct{ request.HA }

func (r *haRequest) Problems() problem.List {
	problems := hostProblems(r.Proxmox, map[string]string{"machine": r.Machine, "comment": r.Comment}, map[string]int{
		"vmid": r.VMID, "maxRestart": r.MaxRestart, "maxRelocate": r.MaxRelocate,
	})

	if len(r.Apart) > 0 && r.ApartRule == "" {
		problems.Add("apartRule", nil, "is missing beside apart: set it")
	}

	return problems.Sorted()
}

func runHA(cmd *cobra.Command, _ *json.Decoder, req *haRequest) (any, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), hostTimeout)
	defer cancel()

	h, err := openHost(ctx, cmd, req.Proxmox, "")
	if err != nil {
		return nil, err
	}

	m := haMaker{proxmoxHost: h, req: req}

	if verb.IsRemoval(cmd) {
		return nil, m.remove(ctx)
	}

	return nil, m.ensure(ctx)
}

// haMaker makes or removes a machine's high availability.
type haMaker struct {
	*proxmoxHost

	req *haRequest
}

func (m haMaker) ensure(ctx context.Context) error {
	if err := m.ensureResource(ctx); err != nil {
		return fmt.Errorf("high availability of %s: %w", m.req.Machine, err)
	}

	hosts := proxmoxapi.HARule{
		Name: ownership.HostsRule(m.req.VMID), Type: "node-affinity", Nodes: strings.Join(m.req.Hosts, ","),
		Resources: proxmoxapi.HAResourceID(m.req.VMID),
	}
	if err := m.ensureRule(ctx, hosts, len(m.req.Hosts) > 0); err != nil {
		return fmt.Errorf("hosts of %s: %w", m.req.Machine, err)
	}

	if m.req.ApartRule == "" {
		return nil
	}

	if err := m.keepApart(ctx); err != nil {
		return fmt.Errorf("distance of %s from the other control planes: %w", m.req.Machine, err)
	}

	return nil
}

// resources returns all resources by id.
func (m haMaker) resources(ctx context.Context) (map[string]proxmoxapi.HAResource, error) {
	var list []proxmoxapi.HAResource
	if err := m.get(ctx, proxmoxapi.PathHAResources, &list); err != nil {
		return nil, err
	}

	all := map[string]proxmoxapi.HAResource{}
	for _, r := range list {
		all[r.ID] = r
	}

	return all, nil
}

func (m haMaker) ensureResource(ctx context.Context) error {
	wanted := map[string]any{
		"max_restart": m.req.MaxRestart, "max_relocate": m.req.MaxRelocate, "comment": m.req.Comment,
	}

	all, err := m.resources(ctx)
	if err != nil {
		return err
	}

	found, exists := all[proxmoxapi.HAResourceID(m.req.VMID)]

	switch {
	case !exists:
		m.say("Proxmox' high availability gets %s (VM %d)", m.req.Machine, m.req.VMID)

		wanted["sid"], wanted["state"] = proxmoxapi.HAResourceID(m.req.VMID), "started"

		return m.Send(ctx, http.MethodPost, proxmoxapi.PathHAResources, wanted)
	case found.MaxRestart == m.req.MaxRestart && found.MaxRelocate == m.req.MaxRelocate && found.Comment == m.req.Comment:
		return nil
	default:
		m.say("Proxmox' high availability of %s (VM %d) changes", m.req.Machine, m.req.VMID)

		return m.Send(ctx, http.MethodPut, proxmoxapi.HAResourcePath(m.req.VMID), wanted)
	}
}

// ensureRule makes a rule as it is wanted, or removes it.
func (m haMaker) ensureRule(ctx context.Context, rule proxmoxapi.HARule, wanted bool) error {
	var rules []proxmoxapi.HARule
	if err := m.get(ctx, proxmoxapi.PathHARules, &rules); err != nil {
		return err
	}

	at := slices.IndexFunc(rules, func(r proxmoxapi.HARule) bool { return r.Name == rule.Name })
	exists, found := at >= 0, proxmoxapi.HARule{}

	if exists {
		found = rules[at]
	}

	body := map[string]any{"type": rule.Type, "resources": rule.Resources, "comment": m.req.Comment}

	if rule.Nodes != "" {
		body["nodes"], body["strict"] = rule.Nodes, 1
	} else {
		body["affinity"] = "negative"
	}

	switch {
	case !wanted && exists:
		return m.Send(ctx, http.MethodDelete, proxmoxapi.HARulePath(rule.Name), nil)
	case !wanted:
		return nil
	case !exists:
		body["rule"] = rule.Name

		return m.Send(ctx, http.MethodPost, proxmoxapi.PathHARules, body)
	case sameList(found.Resources, rule.Resources) && sameList(found.Nodes, rule.Nodes):
		return nil
	default:
		body["digest"] = found.Digest // another machine's command may change it at the same time

		return m.Send(ctx, http.MethodPut, proxmoxapi.HARulePath(rule.Name), body)
	}
}

// sameList reports whether two lists of Proxmox have the same items, in any order.
func sameList(a, b string) bool {
	sorted := func(list string) []string { return slices.Sorted(strings.SplitSeq(list, ",")) }

	return slices.Equal(sorted(a), sorted(b))
}

// keepApart brings the rule of a cluster's control planes up to date with those that are resources now: others join
// with their own commands, which run at the same time.
func (m haMaker) keepApart(ctx context.Context) error {
	const attempts = 10

	var err error

	for range attempts {
		if err = m.keepApartOnce(ctx); err == nil || ctx.Err() != nil {
			return err
		}

		if err := proxmoxapi.Sleep(ctx, hostPoll); err != nil {
			return err
		}
	}

	return err
}

func (m haMaker) keepApartOnce(ctx context.Context) error {
	all, err := m.resources(ctx)
	if err != nil {
		return err
	}

	var members []string

	for _, vmid := range m.req.Apart {
		if r, exists := all[proxmoxapi.HAResourceID(vmid)]; exists {
			members = append(members, r.ID)
		}
	}

	return m.ensureRule(ctx, proxmoxapi.HARule{
		Name: m.req.ApartRule, Type: "resource-affinity", Resources: strings.Join(members, ","),
	}, len(members) > 1)
}

func (m haMaker) remove(ctx context.Context) error {
	all, err := m.resources(ctx)
	if err != nil {
		return fmt.Errorf("high availability of %s: %w", m.req.Machine, err)
	}

	if _, exists := all[proxmoxapi.HAResourceID(m.req.VMID)]; exists {
		m.say("Proxmox' high availability forgets %s (VM %d)", m.req.Machine, m.req.VMID)

		if err := m.Send(ctx, http.MethodDelete, proxmoxapi.HAResourcePath(m.req.VMID), nil); err != nil {
			return fmt.Errorf("high availability of %s: %w", m.req.Machine, err)
		}
	}

	// Proxmox has taken the machine out of its rules, of which none may be left with a single machine.
	if m.req.ApartRule != "" {
		if err := m.keepApart(ctx); err != nil {
			return fmt.Errorf("distance of the other control planes: %w", err)
		}
	}

	for {
		managed, err := proxmoxapi.HAServices(ctx, m.get)

		switch {
		case err != nil:
			return fmt.Errorf("unable to read what Proxmox' high availability does: %w", err)
		case !slices.ContainsFunc(managed, func(s proxmoxapi.HAService) bool {
			return s.ID == proxmoxapi.HAResourceID(m.req.VMID)
		}):
			return nil
		}

		if err := proxmoxapi.Sleep(ctx, hostPoll); err != nil {
			return fmt.Errorf("%s is still managed by Proxmox' high availability: %w", m.req.Machine, err)
		}
	}
}
