package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/components"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/stacks"
)

// Host plans the replacement of all machines of a host that is gone for good. Neither the stack file nor Proxmox may
// have the host any more, and none of its machines may answer.
func (r Replacer) Host(ctx context.Context, host string) (Replacement, error) {
	if err := r.refuseNamedHost(host); err != nil {
		return Replacement{}, err
	}

	state, err := r.readRecoveredMachines(ctx)
	if err != nil {
		return Replacement{}, err
	}

	site, err := readSite(ctx, r.Proxmox(), hasHA(r.Plan))
	if err != nil {
		return Replacement{}, err
	}

	if err := refuseHost(host, site, r.Stack); err != nil {
		return Replacement{}, err
	}

	plan := Replacement{Forgotten: map[string]bool{}, Lines: []string{fmt.Sprintf("%s is gone for good:", host)}}

	lost := map[string]stateMachine{} // by name

	for _, vmid := range slices.Sorted(maps.Keys(state.machines)) {
		m := state.machines[vmid]

		switch vm, found := site.machine(vmid); {
		case m.Host != host:
		case found:
			plan.Lines = append(plan.Lines, fmt.Sprintf("  %s (VM %d) was moved, and stays on %s", m.name(), vmid, vm.Host))
		default:
			lost[m.name()] = m
		}
	}

	lines, err := r.describeClusters(ctx, lost)
	if err != nil {
		return Replacement{}, err
	}

	plan.addLost(lost, r.Plan)
	plan.Lines = append(plan.Lines, lines...)

	for _, resource := range state.ofHost(host) {
		plan.Forgotten[string(resource.URN)] = true
	}

	if len(plan.Forgotten) > 0 {
		var names []string
		for urn := range plan.Forgotten {
			names = append(names, urn[strings.LastIndex(urn, ":")+1:])
		}

		slices.Sort(names)

		plan.Lines = append(plan.Lines, "  the state forgets what was the host's own: "+strings.Join(names, ", "))
	}

	if len(plan.Forgotten)+len(lost) == 0 {
		plan.Lines = append(plan.Lines, "  the state has nothing of it any more: a run finishes what is left")
	}

	return plan, nil
}

// refuseNamedHost names the keys of the configuration that have a host.
func (r Replacer) refuseNamedHost(host string) error {
	var keys []string

	for key, text := range r.config {
		var value any

		path, own := strings.CutPrefix(key, stacks.Project+":")
		if own && json.Unmarshal([]byte(text), &value) == nil {
			keys = append(keys, keysNaming(path, value, host)...)
		}
	}

	if len(keys) == 0 {
		return nil
	}

	slices.Sort(keys)

	return fmt.Errorf("the stack file still has %s: remove these, so that its machines are planned on other hosts, then run the same "+
		"again: %s", host, strings.Join(keys, ", "))
}

// keysNaming returns the paths at which a configuration names a host: entries of hosts, and values of host and hosts.
func keysNaming(path string, value any, host string) (keys []string) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if text, isText := inner.(string); isText && text == host && (key == "host" ||
				key == "name" && strings.HasPrefix(path, "hosts[") && !strings.Contains(path, ".")) {
				keys = append(keys, path+"."+key)
			}

			keys = append(keys, keysNaming(path+"."+key, inner, host)...)
		}
	case []any:
		for i, inner := range value {
			at := fmt.Sprintf("%s[%d]", path, i)
			if inner == host && strings.HasSuffix(path, ".hosts") {
				keys = append(keys, at)
			}

			keys = append(keys, keysNaming(at, inner, host)...)
		}
	}

	return keys
}

// refuseHost returns why Proxmox does not let a host's machines be created elsewhere: a VMID is unique in its cluster.
func refuseHost(host string, site datacentre, stack string) error {
	status, member := site.hosts[host]
	if member && status != proxmoxapi.HostOffline {
		return fmt.Errorf("%s is %s in Proxmox' cluster, so nothing of it is lost: to empty a host, move its machines (nodes.<n>.host), or "+
			"replace them one by one (talos-proxmox replace %s NODE)", host, status, stack)
	}

	var configured []string

	for _, vm := range site.machines {
		if vm.Host == host {
			configured = append(configured, fmt.Sprintf("%s (VM %d)", vm.Name, vm.VMID))
		}
	}

	if len(configured) == 0 {
		return nil
	}

	slices.Sort(configured)

	return fmt.Errorf("Proxmox' cluster still has the configurations of %s on %s, and a VMID is unique in it. Make sure that %[2]s stays "+
		"off for ever, then, as root on another host, `pvecm delnode %[2]s` and `rm -r /etc/pve/nodes/%[2]s`, and run the same again",
		strings.Join(configured, ", "), host)
}

// describeClusters says what the loss of machines means for etcd of their clusters, and refuses if one of them answers.
func (r Replacer) describeClusters(ctx context.Context, lost map[string]stateMachine) (lines []string, err error) {
	for _, c := range r.Plan.Clusters {
		var answering []string

		ofCluster := func(m stateMachine) bool { return m.Cluster == c.Name }
		if !slices.ContainsFunc(slices.Collect(maps.Values(lost)), ofCluster) {
			continue
		}

		status, err := r.clusterStatus(ctx, c.Name)
		if err != nil {
			return nil, err
		}

		for name := range lost {
			if answersAs(status, name) {
				answering = append(answering, name)
			}
		}

		if len(answering) > 0 {
			slices.Sort(answering)

			return nil, fmt.Errorf("%s still answer, although Proxmox no longer has their machines: there would be two of one identity. "+
				"Switch the host off for good, then run the same again", strings.Join(answering, ", "))
		}

		lines = append(lines, "  "+describeLostMembers(c, status))

		for _, volume := range status.LocalVolumes {
			if _, isLost := lost[volume.Node]; isLost {
				lines = append(lines, fmt.Sprintf(
					"  the volume %s of claim %s was at %s of %s", volume.Name, volume.Claim, volume.Path, volume.Node,
				))
			}
		}
	}

	return lines, nil
}

// describeLostMembers says whether the etcd of a cluster has its majority without what is lost.
func describeLostMembers(c spec.Cluster, status request.ClusterStatus) string {
	if status.Quorum == nil || !*status.Quorum {
		return fmt.Sprintf("etcd of cluster %s has lost its majority: the run creates the machines, and fails at the health gate; then "+
			"restore etcd (docs/recovery.md#the-majority-of-etcd-is-lost)", c.Name)
	}

	healthy, voters := healthyOthers("", status)

	return fmt.Sprintf(
		"etcd of cluster %s has its majority: %s of %d members", c.Name, strings.Join(healthy, ", "), voters,
	)
}

// addLost says where lost machines are created, and what is lost with them. The guard accepts their creation.
func (p *Replacement) addLost(lost map[string]stateMachine, planned *spec.Plan) {
	hosts := map[string]string{}
	for _, m := range planned.Members() {
		hosts[m.Name] = m.Host
	}

	for _, name := range slices.Sorted(maps.Keys(lost)) {
		m := lost[name]
		p.Approved = append(p.Approved, m.resource.URN.Name())

		if hosts[name] == "" {
			p.Lines = append(p.Lines, fmt.Sprintf("  %s (VM %d) is not planned any more, and leaves its cluster", name, m.VMID))
		} else {
			p.Lines = append(p.Lines, fmt.Sprintf("  %s (VM %d) is created on %s, as the same node", name, m.VMID, hosts[name]))
		}

		var data []string

		for i, d := range m.Disks {
			if what := d.Interface; i > 0 || m.Cluster == "" {
				if d.Volume != "" {
					what += ", the volume " + d.Volume
				}

				data = append(data, fmt.Sprintf("%s (%d GiB on %s)", what, d.SizeGiB, d.Datastore))
			}
		}

		if len(data) > 0 {
			p.Lines = append(p.Lines, "    its data is lost unless the datastore is shared: "+strings.Join(data, "; "))
		}
	}
}

// ofHost returns the resources of a host itself, which nobody can delete without it: images, templates, its
// preparation.
func (s machineState) ofHost(host string) (own []apitype.ResourceV3) {
	templates, preparations := map[string]bool{}, map[string]bool{} // by URN

	for _, resource := range s.resources {
		outputs := recovery.Reveal(resource.Outputs)

		switch string(resource.Type) {
		case tokens.GoldenTemplate:
			templates[string(resource.URN)] = outputs["host"] == host
		case components.ProxmoxHostPrepType:
			preparations[string(resource.URN)] = resource.URN.Name() == host
		}
	}

	for _, resource := range s.resources {
		if !resource.Custom {
			continue
		}

		parent, inputs := string(resource.Parent), recovery.Reveal(resource.Inputs)

		if templates[parent] || preparations[parent] ||
			string(resource.Type) == tokens.File && inputs["nodeName"] == host ||
			isImage(resource) && imageHost(inputs) == host {
			own = append(own, resource)
		}
	}

	return own
}

// isImage reports whether a resource is part of an image.
func isImage(resource apitype.ResourceV3) bool {
	return resource.Parent != "" &&
		slices.Contains([]string{components.TalosImageType, components.SystemImageType}, string(resource.Parent.Type()))
}

// imageHost returns the host of a command that downloads an image through Proxmox' API; empty = it is another resource.
func imageHost(inputs map[string]any) string {
	text, _ := inputs["stdin"].(string)

	var req request.ImageFile

	_ = json.Unmarshal([]byte(text), &req) // another command's

	return req.Host
}

// Forget removes the resources that nobody can delete from the state.
func (r Replacer) Forget(ctx context.Context, plan Replacement) error {
	if len(plan.Forgotten) == 0 {
		return nil
	}

	return recovery.ForgetResources(ctx, r.Pulumi, r.Stack, plan.Forgotten)
}
