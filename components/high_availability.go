package components

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// registerHA registers the high availability of a machine, if it has any. It is deleted before whatever it depends on:
// Proxmox starts a machine that is switched off, and deletes none in its high availability.
func registerHA(
	ctx *pulumi.Context, name, machine string, m Machine, apart haGroup, opts ...pulumi.ResourceOption,
) error {
	if m.HA == nil {
		return nil
	}

	req := request.HA{Proxmox: ProxmoxSettings(ctx), Machine: machine, HAMachine: request.HAMachine{
		VMID: m.VMID, MaxRestart: m.HA.MaxRestart, MaxRelocate: m.HA.MaxRelocate, Hosts: m.HA.Hosts,
		Comment: ownership.HA(stackOwner(ctx), machine), Apart: apart.vmids, ApartRule: apart.rule,
	}}

	if r := m.HA.Replication; r != nil {
		req.Schedule, req.RateMBs = r.Schedule, r.RateMBs
	}

	text, err := json.Marshal(req)
	if err != nil {
		return err
	}

	name += tokens.OfHA

	_, err = registerAPICommand(ctx, name, apiCommand{
		verb: "ha", provenance: fmt.Sprint(m.VMID), request: pulumi.String(text).ToStringOutput(),
		follows: repairs(vmlookup.FromContext(ctx).Command(name).Follows, vmlookup.FromContext(ctx).CommandDrift(name)),
	}, opts...)

	return err
}

// repairs returns what repeats a command that finds differences in what it made: a number that they raise, and what
// they were. Without any, it stays what it was.
func repairs(last, differences string) string {
	if differences == "" {
		return last
	}

	number, _, _ := strings.Cut(last, ":")
	count, _ := strconv.Atoi(number) // 0 of none

	return fmt.Sprintf("%d: %s", count+1, differences)
}

// haGroup are machines of which no two run on one host, by VMID, and the rule's name; empty for machines without.
type haGroup struct {
	vmids []int
	rule  string
}

// registerHighAvailability registers that of the nodes, once they can leave their cluster.
func (c *TalosCluster) registerHighAvailability(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	group := haGroup{rule: stackOwner(ctx).ApartRule(args.Name)}

	for _, n := range args.controlPlanes() {
		if n.Machine.HA != nil && n.Machine.HA.Apart {
			group.vmids = append(group.vmids, n.Machine.VMID)
		}
	}

	for i, n := range args.nodes() {
		own := group
		if !n.isControlPlane() {
			own = haGroup{}
		}

		vm := []pulumi.Resource{c.nodes[i].vm}
		if err := registerHA(ctx, n.Name, n.Name, n.Machine, own, pulumi.Parent(c),
			pulumi.DependsOn([]pulumi.Resource{c.leaves[i]}), pulumi.ReplaceWith(vm)); err != nil {
			return err
		}
	}

	return nil
}
