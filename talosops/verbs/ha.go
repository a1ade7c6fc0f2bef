package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const haHelp = `Has Proxmox' high availability restart a machine (docs/high-availability.md).

The machine becomes a resource that Proxmox starts after every failure, on another host if its own is dead. A rule says
on which hosts it may run, if not on all; another keeps the control planes of a cluster apart. What is there already is
changed. Whether the machine is to run is only said of a new resource. With a schedule, Proxmox copies its disks to its
other hosts.

With --remove, Proxmox forgets the machine, and the verb waits for that: until then, Proxmox would start a machine that
is switched off, and keep the copies of its disks. Copies on a host that is offline stay, and are named.`

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
	if err := m.ensureReplication(ctx); err != nil { // before Proxmox may start the machine from a copy
		return fmt.Errorf("replication of %s: %w", m.req.Machine, err)
	}

	if err := m.ensureResource(ctx); err != nil {
		return fmt.Errorf("high availability of %s: %w", m.req.Machine, err)
	}

	has, err := proxmoxapi.ReadHA(ctx, m.get)
	if err == nil {
		err = m.changeRule(ctx, has.HostsRule(m.req.HAMachine))
	}

	if err != nil {
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

func (m haMaker) ensureResource(ctx context.Context) error {
	wanted := map[string]any{
		"max_restart": m.req.MaxRestart, "max_relocate": m.req.MaxRelocate, "comment": m.req.Comment,
	}

	has, err := proxmoxapi.ReadHA(ctx, m.get)
	if err != nil {
		return err
	}

	found, exists := has.Resources[proxmoxapi.HAResourceID(m.req.VMID)]

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

// changeRule makes a rule as it is wanted, or removes it.
func (m haMaker) changeRule(ctx context.Context, c proxmoxapi.HAChange) error {
	if c.Subject == "" {
		return nil
	}

	m.say("Proxmox' high availability of %s (VM %d): %s", m.req.Machine, m.req.VMID, c.Subject)

	if c.Found != nil && (c.Rule == nil || c.Found.Type != c.Rule.Type) { // a rule keeps its type
		if err := m.Send(ctx, http.MethodDelete, proxmoxapi.HARulePath(c.Found.Name), nil); err != nil || c.Rule == nil {
			return err
		}

		c.Found = nil
	}

	body := map[string]any{"type": c.Rule.Type, "resources": c.Rule.Resources, "comment": m.req.Comment}
	if c.Rule.Type == proxmoxapi.OnHosts {
		body["nodes"], body["strict"] = c.Rule.Nodes, 1
	} else {
		body["affinity"] = c.Rule.Affinity
	}

	if c.Found == nil {
		body["rule"] = c.Rule.Name

		return m.Send(ctx, http.MethodPost, proxmoxapi.PathHARules, body)
	}

	body["digest"] = c.Found.Digest // another machine's command may change it at the same time
	if c.Found.Disable {
		body["delete"] = "disable" // Proxmox ignores disable=0
	}

	return m.Send(ctx, http.MethodPut, proxmoxapi.HARulePath(c.Rule.Name), body)
}

// keepApart brings the rule of a cluster's control planes up to date with those that are resources now: others join
// with their own commands, which run at the same time.
func (m haMaker) keepApart(ctx context.Context) error {
	const attempts = 10

	var err error

	for range attempts {
		var has proxmoxapi.HighAvailability

		if has, err = proxmoxapi.ReadHA(ctx, m.get); err == nil {
			err = m.changeRule(ctx, has.ApartRule(m.req.HAMachine))
		}

		if err == nil || ctx.Err() != nil {
			return err
		}

		if err := proxmoxapi.Sleep(ctx, hostPoll); err != nil {
			return err
		}
	}

	return err
}

func (m haMaker) remove(ctx context.Context) error {
	has, err := proxmoxapi.ReadHA(ctx, m.get)
	if err != nil {
		return fmt.Errorf("high availability of %s: %w", m.req.Machine, err)
	}

	if _, exists := has.Resources[proxmoxapi.HAResourceID(m.req.VMID)]; exists {
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
			if err := m.removeReplication(ctx); err != nil {
				return fmt.Errorf("replication of %s: %w", m.req.Machine, err)
			}

			return nil
		}

		if err := proxmoxapi.Sleep(ctx, hostPoll); err != nil {
			return fmt.Errorf("%s is still managed by Proxmox' high availability: %w", m.req.Machine, err)
		}
	}
}
