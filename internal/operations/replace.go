package operations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// Replacer plans replacements of machines that are dead, and of those on a host that is lost.
type Replacer struct{ Deployed }

// Replacement is what a replacement does, and what it needs of the run that does it.
type Replacement struct {
	// Lines say it to people.
	Lines []string
	// URN is the VM that the run replaces; empty = it creates what is missing.
	URN string
	// Approved are what the guard may accept, because the replacement means it.
	Approved []string
	// Losses are volumes that are lost, node/volume, beside those that a preview shows.
	Losses []string
	// Forgotten are the URNs of resources that nobody can delete, and that the state forgets before the run.
	Forgotten map[string]bool
}

// evidence is what is known of the machines of a cluster; without it nothing is replaced.
type evidence struct {
	state   machineState
	proxmox *proxmoxapi.Machines
	site    datacentre
	status  request.ClusterStatus
}

// Node plans the replacement of a node's machine. Its VM is deleted before another one gets its identity: by Proxmox,
// which stops it first, or by whoever removed it, in which case nothing may answer as that node any more.
func (r Replacer) Node(ctx context.Context, name string) (Replacement, error) {
	n, c, err := r.node(name)
	if err != nil {
		return Replacement{}, err
	}

	e := evidence{proxmox: r.Proxmox()}

	if e.state, err = r.readRecoveredMachines(ctx); err != nil {
		return Replacement{}, err
	}

	if e.site, err = readSite(ctx, e.proxmox, n.HA != nil); err != nil {
		return Replacement{}, err
	}

	if e.status, err = r.clusterStatus(ctx, c.Name); err != nil {
		return Replacement{}, err
	}

	if err := r.refusal(n, c, e); err != nil {
		return Replacement{}, err
	}

	return r.replacement(ctx, n, c, e)
}

// clusterStatus returns the status of a cluster with the volumes of pods on its nodes.
func (r Replacer) clusterStatus(ctx context.Context, cluster string) (request.ClusterStatus, error) {
	return Status{Deployed: r.Deployed, localVolumes: true}.cluster(ctx, cluster)
}

// refusal returns why a node's machine must not be replaced.
func (r Replacer) refusal(n spec.Node, c spec.Cluster, e evidence) error {
	m := e.state.machines[n.VMID]
	if m.resource.Protect && m.exists {
		return fmt.Errorf("%s is protected, and can be neither deleted nor replaced: set talos-proxmox:protect: false in "+
			"the stack file, run pulumi up, which restarts nothing, then the same again; set protect: true afterwards", n.Name)
	}

	return errors.Join(r.fencing(n, e).refusal(m.exists), etcdRefusal(n, c, e.status))
}

// replacement plans the replacement of a node's machine that nothing refuses.
func (r Replacer) replacement(
	ctx context.Context, n spec.Node, c spec.Cluster, e evidence,
) (plan Replacement, err error) {
	m, f := e.state.machines[n.VMID], r.fencing(n, e)
	plan.Lines = []string{f.describe()}

	switch {
	case f.vm == nil: // the refresh does not find it
		plan.Lines = append(plan.Lines, "  a new one is created on "+n.Host)
	case m.isNew:
		plan.Lines = append(plan.Lines, "  its VM is the new one of a replacement that was interrupted: the run finishes that")
	default:
		if err := plan.addReplacement(ctx, e.proxmox, n, m, f.host); err != nil {
			return plan, err
		}

		if err := plan.addClaims(n, c, e.status); err != nil {
			return plan, err
		}
	}

	if n.Role == spec.RoleControlPlane {
		plan.Lines = append(plan.Lines, "  "+describeMembers(n.Name, e.status))
	}

	plan.addKept(n)

	return plan, nil
}

// addReplacement adds that a run replaces the VM of a node, on this host, and the volumes that no preview of it shows.
func (p *Replacement) addReplacement(
	ctx context.Context, proxmox *proxmoxapi.Machines, n spec.Node, m stateMachine, host string,
) error {
	p.URN, p.Approved = string(m.resource.URN), []string{n.Name + planguard.OfDevices}
	if m.hasLeft { // so that nothing is left in the state with which it could
		p.Approved = append(p.Approved, n.Name)
	}

	volumes, err := preflight.LostVolumes(ctx, proxmox, m.Machine)
	if err != nil {
		return fmt.Errorf("unable to read which volumes are deleted with %s: %w", n.Name, err)
	}

	for _, volume := range volumes {
		p.Losses = append(p.Losses, n.Name+"/"+volume)
	}

	if n.HostPinned {
		host = n.Host
	}

	p.Lines = append(p.Lines, fmt.Sprintf("  its node leaves cluster %s, its VM is stopped and deleted, and a new one is created on %s",
		n.Cluster, host))

	return nil
}

// node returns a planned node and its cluster.
func (r Replacer) node(name string) (spec.Node, spec.Cluster, error) {
	var names []string

	for _, m := range r.Plan.Members() {
		switch {
		case m.Name == name && m.Of == nil:
			return spec.Node{}, spec.Cluster{}, fmt.Errorf("%s is no node of a cluster, which could leave it: recreate it with "+
				"`pulumi up --replace '**::%[1]s-vm'`", name)
		case m.Name == name:
			return m.Node, *m.Of, nil
		case m.Of != nil:
			names = append(names, m.Name)
		}
	}

	return spec.Node{}, spec.Cluster{}, fmt.Errorf("%q is no node of stack %s: name one of %s", name, r.Stack, strings.Join(names, ", "))
}

// addClaims adds the volumes of pods that are lost with a node's disks. A volume that may be on the node counts.
func (p *Replacement) addClaims(n spec.Node, c spec.Cluster, status request.ClusterStatus) error {
	if status.VolumesUnknown != "" {
		return fmt.Errorf("nothing is replaced while it is unknown which volumes of pods are on %s: %s", n.Name, status.VolumesUnknown)
	}

	for _, volume := range status.LocalVolumes {
		if volume.Node != n.Name || keepsPath(n, c, volume.Path) {
			continue
		}

		p.Losses = append(p.Losses, n.Name+"/"+volume.Name)
		p.Lines = append(p.Lines, fmt.Sprintf(
			"  the volume %s of claim %s is deleted with it: %s", volume.Name, volume.Claim, volume.Path,
		))
	}

	return nil
}

// keepsPath reports whether a path on a node is on a disk that outlives its machine. Disks as a whole, below /dev, are
// named as what they are.
func keepsPath(n spec.Node, c spec.Cluster, path string) bool {
	if strings.HasPrefix(path, "/dev/") {
		return true
	}

	below, mounted := strings.CutPrefix(path, talos.UserVolumeMounts+"/")
	name, _, _ := strings.Cut(below, "/")

	match := talos.VolumeSelectors(slices.Concat(c.Patches, n.Patches))[name]
	if !mounted || match == "" {
		return false
	}

	deleted := []int{n.DiskGiB} // with the machine

	for _, d := range n.ExtraDisks {
		if d.Volume == "" {
			deleted = append(deleted, d.SizeGiB)
		}
	}

	largest, known, err := talos.SelectedDisk(match, deleted)

	return known && err == nil && largest == 0
}

// addKept adds what the new machine gets of the old one.
func (p *Replacement) addKept(n spec.Node) {
	for _, d := range n.ExtraDisks {
		if d.Volume != "" {
			p.Lines = append(p.Lines, fmt.Sprintf("  it keeps the volume %s on %s", d.Volume, d.Datastore))
		}
	}

	for _, d := range n.AllDevices() {
		p.Lines = append(p.Lines, fmt.Sprintf("  it gets the device %s of its host", d.Name))
	}
}

// readSite asks Proxmox for its hosts and machines, without whose answer nothing is replaced.
func readSite(ctx context.Context, proxmox *proxmoxapi.Machines, ha bool) (datacentre, error) {
	site := readDatacentre(ctx, proxmox, ha)

	switch {
	case site.hosts == nil:
		return site, fmt.Errorf("nothing is replaced without Proxmox' word that the old machine is off. Not asked: %s",
			strings.Join(site.notAsked, "; "))
	case site.noQuorum:
		return site, errors.New("Proxmox' cluster has no quorum, so that hosts may only seem offline, and nothing can be created: " +
			"`pvecm status` on a host shows who is missing")
	default:
		return site, nil
	}
}

// etcdRefusal returns why a node cannot leave: without a majority of the other members, etcd forgets none.
func etcdRefusal(n spec.Node, c spec.Cluster, status request.ClusterStatus) error {
	if status.Quorum == nil || !*status.Quorum {
		return fmt.Errorf("etcd of cluster %s has no majority, or does not answer, so that %s cannot leave: start the control planes that "+
			"are off, or restore etcd (docs/recovery.md#the-majority-of-etcd-is-lost)", c.Name, n.Name)
	}

	if healthy, voters := healthyOthers(n.Name, status); n.Role == spec.RoleControlPlane && 2*len(healthy) <= voters {
		return fmt.Errorf("without %s, etcd of cluster %s has no majority (healthy beside it: %s, of %d members): repair another control "+
			"plane first; the only one is never replaced (docs/upgrades.md#taking-machines-out)", n.Name, c.Name, noneOr(healthy), voters)
	}

	return nil
}

// healthyOthers returns the healthy members of etcd beside one, and how many members vote.
func healthyOthers(node string, status request.ClusterStatus) (healthy []string, voters int) {
	for _, m := range status.Members {
		if m.Learner {
			continue
		}

		voters++

		if m.Healthy && m.Name != node {
			healthy = append(healthy, m.Name)
		}
	}

	return healthy, voters
}

func describeMembers(node string, status request.ClusterStatus) string {
	healthy, voters := healthyOthers(node, status)

	return fmt.Sprintf("etcd keeps its majority: %s of %d members", strings.Join(healthy, ", "), voters)
}

func noneOr(names []string) string {
	if len(names) == 0 {
		return "none"
	}

	return strings.Join(names, ", ")
}

// stateMachine is a VM in the state.
type stateMachine struct {
	vmdiff.Machine

	resource apitype.ResourceV3
	exists   bool // it was not deleted for a replacement that did not finish
	// hasLeft: its node has left the cluster, in a run that was interrupted. IsNew: this VM was created after that.
	hasLeft, isNew bool
}

// name returns the name of the machine's node.
func (m stateMachine) name() string { return strings.TrimSuffix(m.resource.URN.Name(), tokens.OfVM) }

// machineState is what the state has of machines and hosts.
type machineState struct {
	machines  map[int]stateMachine // by VMID
	resources []apitype.ResourceV3
	isPending bool            // a run was killed, and its operations are pending
	left      map[string]bool // nodes that have left for a replacement which did not finish
}

// interrupted returns the names of the machines whose replacement was interrupted: the old one may be in the state, a
// new one, or none.
func (s machineState) interrupted() []string {
	names := slices.Collect(maps.Keys(s.left))

	for _, m := range s.machines {
		if !m.exists && !s.left[m.name()] {
			names = append(names, m.name())
		}
	}

	slices.Sort(names)

	return names
}

// readMachines reads the state.
func (r Replacer) readMachines(ctx context.Context) (machineState, error) {
	_, deployment, err := recovery.ReadState(ctx, r.Pulumi, r.Stack, "--show-secrets")
	if err != nil {
		return machineState{}, err
	}

	state := newMachineState(deployment.Resources)
	state.isPending = len(deployment.PendingOperations) > 0

	return state, nil
}

// readRecoveredMachines reads the state. A run that was killed has to be recovered first.
func (r Replacer) readRecoveredMachines(ctx context.Context) (machineState, error) {
	state, err := r.readMachines(ctx)
	if err == nil && state.isPending {
		err = fmt.Errorf("a run of stack %s was killed: talos-proxmox recover %[1]s first, then the same again", r.Stack)
	}

	return state, err
}

func newMachineState(resources []apitype.ResourceV3) machineState {
	found := machineState{machines: map[int]stateMachine{}, resources: resources, left: map[string]bool{}}
	commands := map[string]apitype.ResourceV3{} // with which nodes leave

	for _, resource := range resources {
		node, leaves := strings.CutSuffix(resource.URN.Name(), tokens.OfLeave)
		if leaves && string(resource.Type) == tokens.LocalCommand && !resource.Delete {
			commands[node] = resource
			if resource.PendingReplacement {
				found.left[node] = true
			}
		}
	}

	for _, resource := range resources {
		if string(resource.Type) != tokens.VirtualMachine || resource.Delete {
			continue
		}

		m := stateMachine{resource: resource, exists: !resource.PendingReplacement}
		m.Machine, _ = vmdiff.FromState(recovery.Reveal(resource.Outputs)) // an unreadable part does not affect others

		if leave, known := commands[m.name()]; known && leave.PendingReplacement {
			m.hasLeft, m.isNew = true, created(resource).After(created(leave))
		}

		if m.exists || !found.machines[m.VMID].exists {
			found.machines[m.VMID] = m
		}
	}

	return found
}

func created(resource apitype.ResourceV3) time.Time {
	if resource.Created == nil {
		return time.Time{}
	}

	return *resource.Created
}
