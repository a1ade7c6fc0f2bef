package stacks

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/components"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/internal/vmlookup"
)

// Functions of the engine itself.
const (
	getResource   = "pulumi:pulumi:getResource"
	readOutputs   = "pulumi:pulumi:readStackOutputs"
	readResources = "pulumi:pulumi:readStackResourceOutputs"
)

// lastRun is what the stack's last run left in its state.
type lastRun struct {
	machines []vmdiff.Machine
	seen     map[int]vmlookup.Seen // of machines by VMID
	making   map[string]string     // how it made machines: [vmdiff.Making]
	mappings []string              // PCI mappings by name
	left     map[string]bool       // resources: see has
	calls    map[string]vmlookup.Call
	// Versions of Talos and schematics that nodes run, as far as they reported them.
	talos, schematics map[string]string
	// generations are those of nodes' machines when their clusters were healthy.
	generations map[string]string
	// kubernetes are the versions of Kubernetes that the health gate was told, by cluster.
	kubernetes map[string][]string
	record     *record
	id         string // of the stack
	cluster    string // of Proxmox, that the stack is on: [proxmoxapi.Machines.Cluster]
}

// newLastRun is one that has left nothing yet.
func newLastRun() lastRun {
	return lastRun{
		seen: map[int]vmlookup.Seen{}, left: map[string]bool{}, calls: map[string]vmlookup.Call{},
		talos: map[string]string{}, schematics: map[string]string{}, generations: map[string]string{},
		kubernetes: map[string][]string{},
	}
}

// record says in the state that the stack was deployed, from the first moment of its first run. The stack's outputs say
// so as well, but only once a run has made everything.
type record struct{ pulumi.ResourceState }

// recorded is what an earlier run left in it.
type recorded struct {
	Deployed bool   `pulumi:"deployed"`
	ID       string `pulumi:"id"`
	Cluster  string `pulumi:"proxmoxCluster"`
}

// recordRun registers the record and returns what an earlier run left in it.
func recordRun(ctx *pulumi.Context) (r *record, was recorded, err error) {
	r = &record{}
	if err := ctx.RegisterComponentResource(tokens.Record, "record", r); err != nil {
		return nil, was, fmt.Errorf("unable to register the record of this run: %w", err)
	}

	urn, err := internals.UnsafeAwaitOutput(ctx.Context(), r.URN())
	if err != nil {
		return nil, was, fmt.Errorf("unable to register the record of this run: %w", err)
	}
	// Until this run exports its own outputs, the engine has those of an earlier run, and none in the first.
	var earlier struct {
		State recorded `pulumi:"state"`
	}
	if _, err := ctx.InvokePackageRaw(getResource, struct {
		URN string `pulumi:"urn"`
	}{fmt.Sprint(urn.Value)}, &earlier, ""); err != nil {
		return nil, was, fmt.Errorf("unable to read the record of an earlier run: %w", err)
	}

	return r, earlier.State, nil
}

// state records the stack's id and Proxmox cluster, and how a run makes machines; one that is refused makes none.
func (l *lastRun) state(ctx *pulumi.Context, making map[string]string) error {
	outputs := pulumi.Map{"deployed": pulumi.Bool(true), "id": pulumi.String(l.id)}
	if l.cluster != "" {
		outputs["proxmoxCluster"] = pulumi.String(l.cluster)
	}

	if len(making) > 0 {
		outputs["making"] = pulumi.ToStringMap(making)
	}

	return ctx.RegisterResourceOutputs(l.record, outputs)
}

// readLastRun reads the state that this run begins with. Where nothing was ever deployed the engine must not be asked
// for its resources: it would end with a panic (Pulumi 3.259, backendClient.GetStackResourceOutputs). Stacks of earlier
// versions of this program have outputs and no record.
func readLastRun(ctx *pulumi.Context) (last lastRun, err error) {
	last = newLastRun()

	var was recorded
	if last.record, was, err = recordRun(ctx); err != nil {
		return last, err
	}

	last.id, last.cluster = was.ID, was.Cluster

	name := strings.Join([]string{ctx.Organization(), ctx.Project(), ctx.Stack()}, "/")

	if !was.Deployed {
		var stack struct {
			Outputs map[string]any `pulumi:"outputs"`
		}
		if _, err := ctx.InvokePackageRaw(readOutputs, struct {
			Name string `pulumi:"name"`
		}{name}, &stack, ""); err != nil || len(stack.Outputs) == 0 {
			return last, err
		}
	}

	var resources struct {
		Outputs map[string]struct {
			Type    string         `pulumi:"type"`
			Outputs map[string]any `pulumi:"outputs"`
		} `pulumi:"outputs"`
	}
	if _, err := ctx.InvokePackageRaw(readResources, struct {
		Name string `pulumi:"stackName"`
	}{name}, &resources, ""); err != nil {
		return last, err
	}

	for urn, r := range resources.Outputs {
		if err := last.add(urn, r.Type, r.Outputs); err != nil {
			return last, err
		}
	}

	for i := range last.machines {
		m := &last.machines[i]
		m.Talos, m.Schematic = last.talos[m.Name], last.schematics[m.Name]
		m.Bound = last.has(tokens.ConfigurationApply, m.Name+tokens.OfConfiguration) && last.hasBegun(m.Cluster) &&
			!last.has(tokens.LocalCommand, m.Name+tokens.OfLeave)
	}

	slices.SortFunc(last.machines, func(a, b vmdiff.Machine) int { return strings.Compare(a.Name, b.Name) })

	return last, nil
}

// add takes what is judged from a resource of the state.
func (l *lastRun) add(urn, kind string, outputs map[string]any) error {
	parts := strings.Split(urn, "::")
	resource := parts[len(parts)-1]
	l.left[kind+"::"+resource] = true

	switch kind {
	case components.TalosNodeType, components.CloudMachineType:
		vmid, _ := outputs["vmid"].(float64)
		generation, _ := outputs["generation"].(string)
		updates, _ := outputs["updates"].(float64)
		remade, _ := outputs["remade"].(float64)
		l.seen[int(vmid)] = vmlookup.Seen{Generation: generation, Updates: int(updates), Remade: int(remade)}
	case tokens.Record:
		if id, _ := outputs["id"].(string); id != "" {
			l.id = id
		}

		making, _ := outputs["making"].(map[string]any)

		l.making = map[string]string{}
		for key, value := range making {
			l.making[key], _ = value.(string)
		}
	case components.TalosClusterType:
		for output, to := range map[string]map[string]string{
			"talosVersions": l.talos, "schematics": l.schematics, "generations": l.generations,
		} {
			told, _ := outputs[output].(map[string]any)
			for node, text := range told {
				to[node], _ = text.(string)
			}
		}
	case tokens.LocalCommand:
		request, _ := outputs["stdin"].(string)
		environment, _ := outputs["environment"].(map[string]any)
		follows, _ := environment[components.Follows].(string)
		l.calls[resource] = vmlookup.Call{Request: request, Follows: follows}

		if cluster, found := strings.CutSuffix(resource, tokens.OfGate); found {
			printed, _ := outputs["stdout"].(string)
			l.kubernetes[cluster] = talos.KubernetesVersions(printed)
		}
	case tokens.PCIMapping:
		name, _ := outputs["name"].(string)
		l.mappings = append(l.mappings, name)
	case tokens.VirtualMachine:
		machine, err := vmdiff.Read(outputs)
		if err != nil {
			return err
		}

		l.machines = append(l.machines, machine)
	}

	return nil
}

// has says whether a resource of a type and a name is in the state that this run begins with.
func (l *lastRun) has(kind, name string) bool { return l.left[kind+"::"+name] }

// hasAny says whether one of these types is.
func (l *lastRun) hasAny(kinds ...string) bool {
	for resource := range l.left {
		kind, _, _ := strings.Cut(resource, "::")
		if slices.Contains(kinds, kind) {
			return true
		}
	}

	return false
}

// ran says whether a machine of this name is in the state that this run begins with.
func (l *lastRun) ran(name string) bool {
	return slices.ContainsFunc(l.machines, func(m vmdiff.Machine) bool { return m.Name == name })
}

// had says which clusters had a command whose name ends so.
func (l *lastRun) had(command string) func(cluster string) bool {
	return func(cluster string) bool { return l.has(tokens.LocalCommand, cluster+command) }
}

// hasBegun says whether a cluster of this name was bootstrapped.
func (l *lastRun) hasBegun(cluster string) bool {
	return l.has(tokens.LocalCommand, cluster+tokens.OfBootstrap)
}

// readLast reads what the last run left, and where machines that run are. The error is of a state that cannot be read.
func (d *deployment) readLast(ctx *pulumi.Context) error {
	last, err := readLastRun(ctx)
	// A run whose record cannot be read must not give the stack another id.
	if last.record != nil && last.id == "" {
		last.id = d.newID()
	}

	d.last, d.machines.last, d.machines.healthy = last, last.seen, last.generations
	d.machines.owner = ownership.Of(ctx.Organization(), ctx.Project(), ctx.Stack(), last.id)
	d.machines.blank = last.blank()

	vmdiff.KeepRoles(d.plan, func(role string) bool {
		return err != nil || last.has(tokens.Role, role) // a state that is not known may have them
	})

	placed, _ := vmdiff.Placed(d.plan, last.machines)
	for _, cluster := range placed.Clusters {
		for _, n := range cluster.Nodes() {
			d.zones[n.Name] = n.Host
		}
	}

	return err
}

// refused records that a run made nothing.
func (l *lastRun) refused(ctx *pulumi.Context) error {
	if l.record == nil {
		return nil
	}

	return l.state(ctx, l.making)
}

// blank says that no cluster and no machine is known: of a stack that was never brought up, or whose state was lost.
func (l *lastRun) blank() bool { return !l.hasAny(tokens.VirtualMachine, tokens.Secrets) }

// judgeRunning refuses a plan that running machines block, and says what it does to them. A state that
// cannot be read does not stop the run.
func (d *deployment) judgeRunning(ctx *pulumi.Context, unread error) error {
	if unread != nil {
		return warn(
			ctx,
			fmt.Sprintf("unable to read what runs, so effects on running machines are not shown: %s", unread),
		)
	}

	last := d.last

	problems, warnings := last.judge(ctx.Context(), d.plan, d.machines.asked)
	if len(problems) > 0 {
		if err := last.refused(ctx); err != nil {
			return err
		}

		return fmt.Errorf("the plan does not fit the running machines, nothing was changed:\n%w",
			Located(problems, ctx.Stack(), stackFile(ctx)))
	}

	for _, warning := range warnings {
		if err := warn(ctx, warning); err != nil {
			return err
		}
	}

	return last.state(ctx, vmdiff.Making(d.plan))
}

// judge returns what a plan asks of running machines and cannot be had, else what it does to them. Where the state says
// that it cannot be had, Proxmox is asked for the machine.
func (l *lastRun) judge(
	ctx context.Context, plan *spec.Plan, asked *proxmoxapi.Machines,
) (problems problem.List, warnings []string) {
	for i := range plan.Clusters {
		for _, nodes := range [][]spec.Node{plan.Clusters[i].ControlPlanes, plan.Clusters[i].Workers} {
			for j := range nodes {
				nodes[j].Template.Schematic = nodes[j].Template.SchematicID()
			}
		}
	}

	problems, warnings = vmdiff.Judge(plan, l.machines, l.making)
	if corrected := l.correctSizes(ctx, vmdiff.Changes(plan, l.machines), asked); len(corrected) > 0 {
		problems, warnings = vmdiff.Judge(plan, l.machines, l.making)
		warnings = append(warnings, vmdiff.Names(
			corrected,
		)+": the state has other sizes of disks than Proxmox, as after a change that failed; "+
			"`pulumi up --refresh` is needed where this run does not refresh")
	}

	problems = append(problems, vmdiff.KubernetesSteps(plan, l.machines, l.kubernetes)...)
	problems = append(problems, vmdiff.KeptCNIs(plan, l.had(tokens.OfCNI))...)
	warnings = append(warnings, vmdiff.LeftFlux(plan, l.had(tokens.OfGitOps))...)

	return problems, append(warnings, vmdiff.Unfollowed(plan, l.making, l.machines)...)
}

// correctSizes asks Proxmox for the disks of machines that cannot become what is wanted, and returns the machines whose
// disks have other sizes than the state says: of a change that failed, it has what was asked for. Not even a refresh
// before this run has changed the state that the program reads.
func (l *lastRun) correctSizes(
	ctx context.Context, all []vmdiff.Changed, asked *proxmoxapi.Machines,
) (corrected []string) {
	for _, changed := range all {
		m := changed.Machine
		if changed.Effect() != vmdiff.Impossible {
			continue
		}

		machine, err := asked.Find(ctx, m.Host, m.VMID)
		if err != nil {
			continue
		}

		for i := range m.Disks { // which is the list of the state's machine
			if size, found := machine.DiskGiB(m.Disks[i].Interface); found && size < math.MaxInt && size != m.Disks[i].SizeGiB {
				m.Disks[i].SizeGiB = size
				corrected = append(corrected, m.Name)
			}
		}
	}

	return slices.Compact(corrected)
}
