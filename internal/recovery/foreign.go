package recovery

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/tokens"
)

// stateMachine is a machine of the state, as it was created.
type stateMachine struct {
	ownership.Machine

	urn string // of its VM; empty = the state has its component only
}

// addMachine adds what the state says of a machine: the component has its identity, the VM shows that it exists.
func (r *recovery) addMachine(resource apitype.ResourceV3) {
	known := stateMachine{Machine: ownership.MachineOf(resource.URN.Name(), resource.Outputs)}

	switch string(resource.Type) {
	case tokens.TalosNode, tokens.CloudMachine:
	case tokens.VirtualMachine:
		vmid, _ := strconv.Atoi(resource.ID.String()) // another form is not from this program's provider
		r.knownVMIDs[resource.ID.String()] = true
		known = stateMachine{urn: string(resource.URN)}
		known.Name, known.VMID = strings.TrimSuffix(resource.URN.Name(), tokens.OfVM), vmid
	default:
		return
	}

	at := slices.IndexFunc(r.machines, func(m stateMachine) bool { return m.VMID == known.VMID })

	switch {
	case known.VMID == 0:
	case at < 0:
		r.machines = append(r.machines, known)
	case known.urn != "":
		r.machines[at].urn = known.urn
	default:
		r.machines[at].Machine = known.Machine
	}
}

// findForeign finds the machines of the state whose VMIDs other machines have. Without an answer of Proxmox, nothing is
// known of them, and recovery proceeds.
func (r *recovery) findForeign(ctx context.Context) error {
	var known []ownership.Machine

	for _, m := range r.machines {
		if m.urn != "" {
			known = append(known, m.Machine)
		}
	}

	found := proxmoxapi.NewMachines(r.setting(), r.Transport).Verify(ctx, known, r.owner)
	r.foreign = found.Foreign

	for _, err := range found.Unread {
		r.printf("Whether the machines of the state are still those on Proxmox was not verified: %v", err)

		break
	}

	return nil
}

// withoutForeign returns the state's resources without the VMs whose VMIDs other machines have.
func (r *recovery) withoutForeign(text json.RawMessage) (json.RawMessage, error) {
	gone := map[string]bool{}

	for _, m := range r.machines {
		if slices.ContainsFunc(r.foreign, func(f proxmoxapi.Foreign) bool { return f.VMID == m.VMID }) {
			gone[m.urn] = true
		}
	}

	return withoutResources(text, gone)
}

// ForgetResources removes resources from a stack's state, as a refresh does that does not find them: what depended on
// them stays.
func ForgetResources(ctx context.Context, pulumi Pulumi, stack string, gone map[string]bool) error {
	state, _, err := ReadState(ctx, pulumi, stack)
	if err != nil {
		return err
	}

	var fields map[string]json.RawMessage
	if err := json.Unmarshal(state.Deployment, &fields); err != nil {
		return fmt.Errorf("unable to read the state of stack %q: %w", stack, err)
	}

	if fields["resources"], err = withoutResources(fields["resources"], gone); err != nil {
		return fmt.Errorf("stack %q: %w", stack, err)
	}

	return WriteState(ctx, pulumi, stack, state, fields)
}

// withoutResources returns the resources of a state without those with these URNs.
func withoutResources(text json.RawMessage, gone map[string]bool) (json.RawMessage, error) {
	var all, kept []map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("unable to read the resources of the state: %w", err)
	}

	for _, resource := range all {
		var urn string

		_ = json.Unmarshal(resource["urn"], &urn)

		if gone[urn] {
			continue
		}

		for _, field := range []string{"dependencies", "propertyDependencies", "replaceWith"} {
			if err := removeURNs(resource, field, gone); err != nil {
				return nil, fmt.Errorf("unable to read the %s of %s: %w", field, urn, err)
			}
		}

		kept = append(kept, resource)
	}

	return json.Marshal(kept)
}

// removeURNs removes URNs from a field of a resource: a list, or lists by property.
func removeURNs(resource map[string]json.RawMessage, field string, gone map[string]bool) (err error) {
	text, exists := resource[field]
	if !exists {
		return nil
	}

	isGone := func(urn string) bool { return gone[urn] }

	var list []string
	if json.Unmarshal(text, &list) == nil {
		resource[field], err = json.Marshal(slices.DeleteFunc(list, isGone))

		return err
	}

	var byProperty map[string][]string
	if err := json.Unmarshal(text, &byProperty); err != nil {
		return err
	}

	for property, urns := range byProperty {
		byProperty[property] = slices.DeleteFunc(urns, isGone)
	}

	resource[field], err = json.Marshal(byProperty)

	return err
}
