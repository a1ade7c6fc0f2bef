package stacks

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tokens"
)

// created returns the machines of the state as they were created, also those that leave the plan, and the finished
// templates that the plan keeps. The provider knows a machine by its VMID alone, and a refresh reads whatever has it,
// so what identifies a machine is not from the VM's resource.
func (l *lastRun) created(plan *spec.Plan) []ownership.Machine {
	var all []ownership.Machine

	for vmid, name := range l.vms {
		known := l.identities[vmid]
		known.Name, known.VMID = name, vmid
		all = append(all, known)
	}

	for _, t := range plan.Templates {
		known := l.identities[t.VMID]
		if known.Template && l.isBuilt(t) && known.Name == t.Key+"-"+t.Host {
			all = append(all, known)
		}
	}

	return all
}

// checkIdentities refuses a run while another machine has the VMID of one of the stack's: it would be changed, or
// deleted, in the place of the stack's. An update needs an answer of Proxmox; a machine about which Proxmox answers
// with an error cannot be changed by the run either.
func (d *deployment) checkIdentities(ctx context.Context) (found problem.List, _ error) {
	known := d.lastRun.created(d.plan)
	d.lookup.known = map[int]ownership.Machine{}

	for _, m := range known {
		d.lookup.known[m.VMID] = m
	}

	d.lookup.verified = d.lookup.proxmox.Verify(ctx, known, d.lookup.owner)

	for _, foreign := range d.lookup.verified.Foreign {
		found.Add("", nil, "%s", foreign.Explain(d.stack))
	}

	if len(found) > 0 {
		return found, nil
	}

	for _, err := range d.lookup.verified.Unread {
		if !d.preview && proxmoxapi.StatusCode(err) == 0 {
			return nil, fmt.Errorf("Proxmox does not say whether the stack's machines are the ones that it created, nothing was "+ //nolint:staticcheck // a name
				"changed: %w: run `pulumi up` again when it answers", err)
		}
	}

	return found, nil
}

// registerMachineGuard registers the command that is deleted before any machine when the stack is destroyed, which does
// not run this program: it verifies that the machines are those that the stack created, and fails otherwise. One
// command for all, because the state grows with each.
func (d *deployment) registerMachineGuard(ctx *pulumi.Context) error {
	var (
		machines []ownership.Machine
		ids      []any
	)

	add := func(m spec.VM, id pulumi.StringPtrOutput) {
		machines = append(machines, ownership.Machine{Name: m.Name, VMID: m.VMID, MAC: m.MAC})
		ids = append(ids, id)
	}

	for _, planned := range d.plan.Clusters {
		for i, node := range d.clusters[planned.Name].Nodes() {
			add(planned.Nodes()[i].VM, node.CreationID)
		}
	}

	for _, m := range d.plan.Machines {
		add(m.VM, d.cloudMachines[m.Name].CreationID)
	}

	if len(machines) == 0 {
		return nil
	}

	stdin := pulumi.All(ids...).ApplyT(func(values []any) (string, error) {
		req := request.Verify{
			Stack: ctx.Stack(), Owner: d.lookup.owner.Name, ID: d.lookup.owner.ID, Machines: machines,
			Proxmox: components.ProxmoxSettings(ctx),
		}

		for i, value := range values {
			if id, ok := value.(*string); ok && id != nil {
				req.Machines[i].CreationID = *id
			}
		}

		text, err := json.Marshal(req)

		return string(text), err
	}).(pulumi.StringOutput)

	_, err := local.NewCommand(ctx, tokens.MachineGuard, &local.CommandArgs{
		Delete:                 pulumi.String(talosopsexec.Command(ctx) + "verify"),
		Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Logging:                local.LoggingStderr,
	})

	return err
}
