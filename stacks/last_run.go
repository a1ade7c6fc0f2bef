package stacks

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
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
	machines          []vmdiff.Machine
	vms               map[int]string               // names of the VMs' nodes and machines, by VMID
	lookups           map[int]vmlookup.State       // by VMID
	identities        map[int]ownership.Machine    // of machines and templates, by VMID: see [lastRun.created]
	creationSettings  map[string]string            // [vmdiff.CreationSettings] of the machines that it has
	versions          map[string]versions          // by cluster
	mappings          []string                     // paths of PCI and USB mappings
	resources         map[string]bool              // by type and name: see has
	calls             map[string]vmlookup.Command  // of talosops, by resource name
	configurations    map[string]string            // of machines, by node; secret
	talos, schematics map[string]string            // reported by nodes, by node
	secureBoot        map[string]bool              // whether nodes were planned with it, by node
	generations       map[string]string            // of machines when their clusters were healthy, by node
	kubernetes        map[string][]string          // versions that the health gate found, by cluster
	authorities       map[string]talos.Authority   // of the Talos API, by cluster; secret
	contracts         map[string]string            // of the secrets, by cluster
	secrets           map[string]map[string]any    // machine secrets, by cluster
	applied           map[string]request.KeptApply // what the state keeps of configurations, by node; secret
	record            *record
	stackID           string
	proxmoxCluster    string // [proxmoxapi.Machines.Cluster]
}

// newLastRun returns the last run of a stack without a state.
func newLastRun() lastRun {
	return lastRun{
		vms:     map[int]string{},
		lookups: map[int]vmlookup.State{}, identities: map[int]ownership.Machine{}, resources: map[string]bool{},
		calls: map[string]vmlookup.Command{}, configurations: map[string]string{},
		talos: map[string]string{}, schematics: map[string]string{}, secureBoot: map[string]bool{},
		generations: map[string]string{},
		kubernetes:  map[string][]string{}, authorities: map[string]talos.Authority{},
		contracts: map[string]string{}, versions: map[string]versions{},
		secrets: map[string]map[string]any{}, applied: map[string]request.KeptApply{},
	}
}

// loadLastRun reads the state that this run begins with. If nothing was ever deployed, the engine must not be queried
// for resources: it would panic (Pulumi 3.274, backendClient.GetStackResourceOutputs). Stacks of earlier versions of
// this program have outputs and no record.
func loadLastRun(ctx *pulumi.Context) (last lastRun, err error) {
	last = newLastRun()

	var earlier recordState
	if last.record, earlier, err = newRecord(ctx); err != nil {
		return last, err
	}

	last.stackID, last.proxmoxCluster = earlier.ID, earlier.Cluster

	name := strings.Join([]string{ctx.Organization(), ctx.Project(), ctx.Stack()}, "/")

	if !earlier.Deployed {
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
		Outputs map[string]stateResource `pulumi:"outputs"`
	}
	if _, err := ctx.InvokePackageRaw(readResources, struct {
		Name string `pulumi:"stackName"`
	}{name}, &resources, ""); err != nil {
		return last, err
	}

	return last, last.addAll(resources.Outputs, ownership.Owner{Name: name})
}

// stateResource is a resource of the state, with secrets in plain text.
type stateResource struct {
	Type    string         `pulumi:"type"`
	Outputs map[string]any `pulumi:"outputs"`
}

// addAll reads the resources of a stack's state, by URN.
func (l *lastRun) addAll(resources map[string]stateResource, stack ownership.Owner) error {
	for urn, r := range resources {
		if err := l.add(urn, r.Type, r.Outputs); err != nil {
			return err
		}
	}

	for _, r := range resources { // an interrupted destroy may have deleted the record before the machines
		description, _ := r.Outputs["description"].(string)

		owner, _ := ownership.OwnerOf(description)
		if l.stackID == "" && r.Type == tokens.VirtualMachine && owner.IsNamesake(stack) {
			l.stackID = owner.ID
		}
	}

	l.readConfigurations()

	for i := range l.machines {
		m := &l.machines[i]
		m.Talos, m.Schematic = l.talos[m.Name], l.schematics[m.Name]
		m.Volumes, _ = talos.VolumesOf(l.configurations[m.Name]) // unknown without a configuration

		if planned, known := l.secureBoot[m.Name]; known {
			m.SecureBoot = &planned
		}

		if _, isNode := l.configurations[m.Name]; isNode && !l.has(tokens.LocalCommand, m.Name+tokens.OfLeave) {
			m.CannotLeave = noLeaveCommand
		}
	}

	slices.SortFunc(l.machines, func(a, b vmdiff.Machine) int { return strings.Compare(a.Name, b.Name) })

	return nil
}

// readConfigurations reads the machine configurations that the state keeps, with the secrets of their clusters. If
// these were replaced since, they stay references, which a preview shows as changes.
func (l *lastRun) readConfigurations() {
	for node, kept := range l.applied {
		for _, secrets := range l.secrets {
			if kept.Resolve(secrets) {
				break
			}
		}

		l.configurations[node] = kept.Configuration
	}
}

// add reads a resource of the state.
func (l *lastRun) add(urn, kind string, outputs map[string]any) error {
	parts := strings.Split(urn, "::")
	resource := parts[len(parts)-1]
	l.resources[kind+"::"+resource] = true

	switch kind {
	case components.TalosNodeType, components.CloudMachineType:
		known := ownership.MachineOf(resource, outputs)
		updates, _ := outputs["updates"].(float64)
		remade, _ := outputs["remade"].(float64)
		l.identities[known.VMID] = known
		l.lookups[known.VMID] = vmlookup.State{
			Generation: known.Generation, CreationID: known.CreationID, Updates: int(updates), Recreated: int(remade),
		}
	case components.GoldenTemplateType:
		known := ownership.MachineOf(resource, outputs)
		known.Template = true
		l.identities[known.VMID] = known
	case tokens.Record:
		if id, _ := outputs["id"].(string); id != "" {
			l.stackID = id
		}

		if cluster, _ := outputs["proxmoxCluster"].(string); cluster != "" {
			l.proxmoxCluster = cluster
		}

		planned, _ := outputs["versions"].(map[string]any)
		for cluster, value := range planned {
			text, _ := value.(string)
			l.versions[cluster] = parseVersions(text)
		}

		settings, _ := outputs["making"].(map[string]any)

		l.creationSettings = map[string]string{}
		for key, value := range settings {
			l.creationSettings[key], _ = value.(string)
		}
	case components.TalosClusterType:
		for output, to := range map[string]map[string]string{
			"talosVersions": l.talos, "schematics": l.schematics, "generations": l.generations,
		} {
			values, _ := outputs[output].(map[string]any)
			for node, text := range values {
				to[node], _ = text.(string)
			}
		}
	case tokens.Secrets:
		secrets, _ := outputs["machineSecrets"].(map[string]any)
		cluster := strings.TrimSuffix(resource, tokens.OfSecrets)
		l.authorities[cluster], _ = talos.SecretsAuthority(secrets, talos.TalosAuthority)
		l.contracts[cluster], _ = outputs["talosVersion"].(string)
		l.secrets[cluster] = secrets
	case tokens.ConfigurationApply: // of a program before this one applied configurations itself
		l.configurations[strings.TrimSuffix(resource, tokens.OfConfiguration)], _ = outputs["machineConfiguration"].(string)
	case tokens.LocalCommand:
		text, _ := outputs["stdin"].(string)
		environment, _ := outputs["environment"].(map[string]any)
		follows, _ := environment[components.TriggerVariable].(string)
		l.calls[resource] = vmlookup.Command{Request: text, Follows: follows}

		if node, found := strings.CutSuffix(resource, tokens.OfConfiguration); found {
			l.applied[node] = request.AppliedConfiguration(text)
		}

		if strings.HasSuffix(resource, tokens.OfUpgrade) {
			for _, image := range request.ParseUpgrade(text).Images {
				l.secureBoot[image.Node] = talos.IsSecureBoot(image.Installer)
			}
		}

		if cluster, found := strings.CutSuffix(resource, tokens.OfGate); found {
			printed, _ := outputs["stdout"].(string)
			l.kubernetes[cluster] = talos.KubernetesVersions(printed)
		}
	case tokens.PCIMapping, tokens.USBMapping:
		name, _ := outputs["name"].(string)
		mapped := map[string]spec.DeviceKind{tokens.PCIMapping: spec.OtherDevice, tokens.USBMapping: spec.USBDevice}
		l.mappings = append(l.mappings, spec.Device{Name: name, Kind: mapped[kind]}.MappingPath())
	case tokens.VirtualMachine:
		machine, err := vmdiff.FromState(outputs)
		if err != nil {
			return err
		}

		l.machines = append(l.machines, machine)
		l.vms[machine.VMID] = strings.TrimSuffix(resource, tokens.OfVM)
	}

	return nil
}

// has reports whether the state has a resource with this type and name.
func (l *lastRun) has(kind, name string) bool { return l.resources[kind+"::"+name] }

// hasAny reports whether the state has a resource of one of these types.
func (l *lastRun) hasAny(kinds ...string) bool {
	for resource := range l.resources {
		kind, _, _ := strings.Cut(resource, "::")
		if slices.Contains(kinds, kind) {
			return true
		}
	}

	return false
}

// hasMachine reports whether the state has a machine with this name.
func (l *lastRun) hasMachine(name string) bool {
	return slices.ContainsFunc(l.machines, func(m vmdiff.Machine) bool { return m.Name == name })
}

// hasCommand returns a function that reports whether a cluster has a command with this suffix.
func (l *lastRun) hasCommand(command string) func(cluster string) bool {
	return func(cluster string) bool { return l.has(tokens.LocalCommand, cluster+command) }
}

// isBootstrapped reports whether a cluster was bootstrapped.
func (l *lastRun) isBootstrapped(cluster string) bool {
	return l.has(tokens.LocalCommand, cluster+tokens.OfBootstrap)
}

// useLastRun makes the last run known to what follows; err is that of an unreadable state.
func (d *deployment) useLastRun(last lastRun, owner ownership.Owner, err error) {
	owner.ID = last.stackID

	d.lastRun, d.lookup.last, d.lookup.healthyGenerations = last, last.lookups, last.generations
	d.lookup.owner, d.lookup.isBlank, d.stateErr = owner, last.isBlank(), err

	vmdiff.KeepRoles(d.plan, func(role string) bool {
		return err != nil || last.has(tokens.Role, role) // an unreadable state may have them
	})

	placed, _ := vmdiff.WithCurrentHosts(d.plan, last.machines)
	for _, cluster := range placed.Clusters {
		for _, n := range cluster.Nodes() {
			d.zones[n.Name] = n.Host
		}
	}
}

// isBlank reports whether the state has neither clusters nor machines: the stack was never deployed, or its state was
// lost.
func (l *lastRun) isBlank() bool { return !l.hasAny(tokens.VirtualMachine, tokens.Secrets) }

// checkRunningMachines refuses a plan that running machines block, and warns about its effects on them. An unreadable
// state does not stop the run.
func (d *deployment) checkRunningMachines(ctx context.Context) (found problem.List, _ error) {
	if d.stateErr != nil {
		found.Warn("", nil, "unable to read the state, so effects on running machines are not shown: %s", d.stateErr)

		return found, nil
	}

	unanswered := d.findDepartures(ctx)

	found, warnings := d.lastRun.checkPlan(ctx, d.plan, d.lookup.proxmox)
	for _, warning := range slices.Concat(unanswered, warnings, d.missingTPMs()) {
		found.Warn("", nil, "%s", warning)
	}

	d.checkMaintenance(&found)

	return found, nil
}

// checkPlan returns the changes of a plan that running machines cannot follow, and warnings about its effects on them.
// For machines that the state says cannot follow, Proxmox is queried.
func (l *lastRun) checkPlan(
	ctx context.Context, plan *spec.Plan, proxmox *proxmoxapi.Machines,
) (problems problem.List, warnings []string) {
	for i := range plan.Clusters {
		for _, nodes := range [][]spec.Node{plan.Clusters[i].ControlPlanes, plan.Clusters[i].Workers} {
			for j := range nodes {
				nodes[j].Template.Schematic = nodes[j].Template.SchematicID()
			}
		}
	}

	problems, warnings = vmdiff.Check(plan, l.machines, l.creationSettings)
	if corrected := l.correctSizes(ctx, vmdiff.Changes(plan, l.machines), proxmox); len(corrected) > 0 {
		problems, warnings = vmdiff.Check(plan, l.machines, l.creationSettings)
		warnings = append(warnings, vmdiff.JoinNames(
			corrected,
		)+": the state has other sizes of disks than Proxmox, as after a change that failed; "+
			"`pulumi up --refresh` is needed where this run does not refresh")
	}

	problems = append(problems, vmdiff.CheckKubernetes(plan, l.machines, l.kubernetes)...)
	problems = append(problems, vmdiff.CheckCNIs(plan, l.hasCommand(tokens.OfCNI))...)
	warnings = append(warnings, vmdiff.KubernetesUpgrades(plan, l.kubernetes)...)
	warnings = append(warnings, vmdiff.CheckFlux(plan, l.hasCommand(tokens.OfGitOps))...)

	return problems, append(warnings, vmdiff.IgnoredChanges(plan, l.creationSettings, l.machines)...)
}

// missingTPMs describes machines whose TPM somebody removed in Proxmox, which the provider does not notice.
func (d *deployment) missingTPMs() (warnings []string) {
	for _, m := range d.lastRun.machines {
		machine, read := d.lookup.verified.Own[m.VMID]
		if _, has := machine.Option("tpmstate0", ""); !read || !m.TPM || has {
			continue
		}

		warnings = append(warnings, fmt.Sprintf("%s (VM %d on host %s) has lost its TPM in Proxmox, and opens no volume with a key of "+
			"it at its next start: attach the former state again (`qm set %[2]d --tpmstate0 <volume>`), or recreate the machine: "+
			"`pulumi up --replace '**::%[1]s-vm'`", m.Name, m.VMID, m.Host))
	}

	return warnings
}

// correctSizes queries Proxmox for the disks of machines that cannot be changed as planned, and returns the machines
// whose disks have other sizes than in the state, which has the requested size after a change that failed. Even a
// refresh in this run does not change the state that the program reads.
func (l *lastRun) correctSizes(
	ctx context.Context, changes []vmdiff.MachineChanges, proxmox *proxmoxapi.Machines,
) (corrected []string) {
	for _, changed := range changes {
		m := changed.Machine
		if changed.Effect() != vmdiff.Impossible {
			continue
		}

		machine, err := proxmox.Find(ctx, m.Host, m.VMID)
		if err != nil {
			continue
		}

		for i := range m.Disks { // shared with l.machines
			if size, found := machine.DiskGiB(m.Disks[i].Interface); found && size < math.MaxInt && size != m.Disks[i].SizeGiB {
				m.Disks[i].SizeGiB = size
				corrected = append(corrected, m.Name)
			}
		}
	}

	return slices.Compact(corrected)
}
