package operations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// RepairAction is what a repair does about a worker.
type RepairAction string

// The actions.
const (
	// RepairReplace: its machine is to be replaced.
	RepairReplace RepairAction = "replace"
	// RepairReplaced: its machine was replaced.
	RepairReplaced RepairAction = "replaced"
	// RepairFailed: the replacement of its machine failed.
	RepairFailed RepairAction = "failed"
	// RepairWait: a later run may replace its machine.
	RepairWait RepairAction = "wait"
	// RepairRefuse: only a person may do something about it.
	RepairRefuse RepairAction = "refuse"
)

// Repair is what is done about a worker that is not Ready, or about a cluster whose workers nobody can judge.
type Repair struct {
	Cluster string       `json:"cluster"`
	Pool    string       `json:"pool,omitempty"`
	Node    string       `json:"node,omitempty"` // empty = no single one
	Action  RepairAction `json:"action"`
	Why     string       `json:"why"`
	Command string       `json:"command,omitempty"` // for a person

	// Plan is what a replacement does; its losses are permitted if LoseVolumes.
	Plan        Replacement `json:"-"`
	LoseVolumes bool        `json:"-"`
}

// String describes it in a line.
func (r Repair) String() string {
	name := r.Node
	if name == "" {
		name = "cluster " + r.Cluster
	}

	text := fmt.Sprintf("%s: %s: %s", name, r.Action, r.Why)
	if r.Command != "" {
		text += ". A person can: " + r.Command
	}

	return text
}

// refuse returns the repair as one for a person.
func (r Repair) refuse(command, format string, values ...any) Repair {
	r.Action, r.Why, r.Command = RepairRefuse, fmt.Sprintf(format, values...), command

	return r
}

// wait returns the repair as one for a later run.
func (r Repair) wait(format string, values ...any) Repair {
	r.Action, r.Why = RepairWait, fmt.Sprintf(format, values...)

	return r
}

// Repairer decides which dead workers are replaced without asking: those of pools with `repair`, by the evidence of a
// status, and with the refusals of a replacement.
type Repairer struct {
	Replacer

	Now func() time.Time
	// Recover removes what a killed run left, and reports whether there was anything. It is called before a machine is to
	// be replaced.
	Recover func(ctx context.Context) (recovered bool, err error)
}

// errRecovered says that what was read is outdated.
var errRecovered = errors.New("a killed run was recovered")

// Decide returns what is to be done now about workers that are not Ready, those first whose replacement was
// interrupted. Done is what this run has done, which it does not decide about again. It changes nothing, except that it
// has a killed run recovered.
func (r Repairer) Decide(ctx context.Context, done []Repair) (repairs []Repair, err error) {
	for {
		if repairs, err = r.decide(ctx, done); !errors.Is(err, errRecovered) {
			return repairs, err
		}
	}
}

func (r Repairer) decide(ctx context.Context, done []Repair) (repairs []Repair, err error) {
	state, err := r.readMachines(ctx)
	if err != nil {
		return nil, err
	}

	found := false

	for _, c := range r.Plan.Clusters {
		if !slices.ContainsFunc(c.Workers, func(n spec.Node) bool { return n.Repair != nil }) {
			continue
		}

		found = true

		of, err := r.decideCluster(ctx, c, state, done)
		if err != nil {
			return nil, err
		}

		repairs = append(repairs, of...)
	}

	if !found {
		return nil, fmt.Errorf("no pool of workers of stack %s has repair: set workers[].repair: {} in the stack file "+
			"(docs/recovery.md#repair-by-itself)", r.Stack)
	}

	slices.SortStableFunc(repairs, func(a, b Repair) int { return interruptedFirst(a) - interruptedFirst(b) })

	return r.limit(ctx, repairs, done)
}

func interruptedFirst(r Repair) int {
	if r.Action == RepairReplace && r.Why == wasInterrupted {
		return 0
	}

	return 1
}

// decideCluster decides about the workers of a cluster.
func (r Repairer) decideCluster(
	ctx context.Context, c spec.Cluster, state machineState, done []Repair,
) (repairs []Repair, err error) {
	e := evidence{state: state, proxmox: r.Proxmox()}

	if e.status, err = r.clusterStatus(ctx, c.Name); err != nil {
		return nil, err
	}

	whole := Repair{Cluster: c.Name}
	command := fmt.Sprintf("talos-proxmox status %s %s", r.Stack, c.Name)

	switch {
	case e.status.Quorum == nil || !*e.status.Quorum:
		return append(repairs, whole.refuse(command, "etcd has no majority, or does not answer, so that nothing is replaced")), nil
	case !e.status.KubernetesAnswers():
		return append(repairs, whole.refuse(command, "no Kubernetes API answers, so that nobody knows which nodes are dead")), nil
	}

	for _, n := range c.Workers {
		if n.Repair == nil || slices.ContainsFunc(done, func(repair Repair) bool { return repair.Node == n.Name }) {
			continue
		}

		repair := Repair{Cluster: c.Name, Pool: n.Pool, Node: n.Name, LoseVolumes: n.Repair.LoseVolumes}
		interrupted := slices.Contains(state.interrupted(), n.Name)
		repair = r.judge(repair, n, e.status.Node(n.Name), state.machines[n.VMID], interrupted)

		if repair.Action == RepairReplace {
			recovered, err := r.Recover(ctx)

			switch {
			case errors.Is(err, recovery.ErrUnderWay):
				return append(repairs, repair.wait("%s; but %v", repair.Why, err)), nil
			case err != nil:
				return nil, err
			case recovered:
				return nil, errRecovered
			}

			if e.site.hosts == nil {
				if e.site, err = readSite(ctx, e.proxmox, hasHA(r.Plan)); err != nil {
					return nil, err
				}
			}

			if repair, err = r.plan(ctx, repair, n, c, e); err != nil {
				return nil, err
			}
		}

		if repair.Action != "" {
			repairs = append(repairs, repair)
		}
	}

	return repairs, nil
}

const wasInterrupted = "its replacement was interrupted, and is finished"

// judge decides about a worker by what Kubernetes, its machine and the state say; no action = it is well, or does not
// exist yet.
func (r Repairer) judge(
	repair Repair, n spec.Node, status request.NodeStatus, m stateMachine, interrupted bool,
) Repair {
	since := status.ReadySince
	if status.Ready == "" { // not registered
		since = created(m.resource)
	}

	now := r.Now()
	silence := now.Sub(since).Truncate(time.Second)

	switch {
	case n.Skip, m.resource.URN == "" && !interrupted:
		return repair
	case interrupted:
		repair.Action, repair.Why = RepairReplace, wasInterrupted

		return repair
	case status.Ready != "" && status.Ready != "no":
		return repair
	case silence < n.Repair.After:
		return repair.wait("it has not been Ready for %s, and may be replaced after %s", silence, n.Repair.After)
	case status.Cordoned:
		return repair.wait("it has not been Ready for %s, and is cordoned, so that somebody may work at it: kubectl uncordon %s ends that",
			silence, n.Name)
	case status.Answers:
		return repair.refuse(r.command(n.Name), "it has not been Ready for %s, but Talos answers on its machine, which is not dead", silence)
	default:
		repair.Action = RepairReplace
		repair.Why = fmt.Sprintf("it has not been Ready for %s, and its machine does not answer", silence)

		return repair
	}
}

// command returns the command with which a person replaces a node's machine.
func (r Repairer) command(arguments ...string) string {
	return strings.Join(append([]string{"talos-proxmox replace", r.Stack}, arguments...), " ")
}

// plan plans the replacement of a dead worker, unless Proxmox or a loss speaks against it.
func (r Repairer) plan(ctx context.Context, repair Repair, n spec.Node, c spec.Cluster, e evidence) (Repair, error) {
	for _, other := range e.state.interrupted() {
		if other != n.Name {
			return repair.refuse("talos-proxmox preview "+r.Stack, "%s; but the run would also finish what was interrupted at %s", repair.Why,
				other), nil
		}
	}

	f := r.fencing(n, e)

	silent := silentWorkers(c, e.status)
	if f.vm != nil && f.vm.Status == "running" && silent > 1 && 2*silent > len(c.Workers) {
		return repair.refuse(r.command(n.Name), "%s; but its VM runs, and %d of the %d workers of cluster %s are silent at once, as "+
			"after a fault of the network, which no replacement mends", repair.Why, silent, len(c.Workers), c.Name), nil
	}

	if action, why := f.highAvailability(n.HA != nil && e.site.services == nil); action == RepairWait {
		return repair.wait("%s", why), nil
	} else if action == RepairRefuse {
		return repair.refuse(r.command(n.Name), "%s", why), nil
	}

	if err := r.refusal(n, c, e); err != nil {
		command := r.command(n.Name)
		if f.vm != nil && f.hostStatus == proxmoxapi.HostOffline {
			command = r.command("--host", f.host)
		}

		return repair.refuse(command, "%v", err), nil
	}

	if f.vm != nil && f.hostStatus != proxmoxapi.HostOnline {
		return repair.wait("its host %s has not reported to Proxmox lately, so that nobody knows whether its VM runs", f.host), nil
	}

	plan, err := r.replacement(ctx, n, c, e)
	repair.Plan = plan

	return repair, err
}

// silentWorkers returns how many of a cluster's workers are not Ready and do not answer.
func silentWorkers(c spec.Cluster, status request.ClusterStatus) (count int) {
	for _, n := range c.Workers {
		if node := status.Node(n.Name); node.Ready == "no" && !node.Answers {
			count++
		}
	}

	return count
}

// RefuseLosses returns a repair that would lose volumes as one for a person.
func (r Repairer) RefuseLosses(repair Repair, volumes []string) Repair {
	return repair.refuse(r.command(repair.Node, "--lose-volumes", strings.Join(volumes, ",")),
		"%s; but these volumes would be lost with it, and its pool has no repair.loseVolumes: %s", repair.Why, strings.Join(volumes, ", "))
}

// limit leaves what exceeds the limits of pools to a later run, and everything while another run works on a cluster.
func (r Repairer) limit(ctx context.Context, repairs, done []Repair) ([]Repair, error) {
	count := map[[2]string]int{} // by cluster and pool
	limits := map[[2]string]int{}

	for _, m := range r.Plan.Members() {
		if m.Of == nil || m.Repair == nil {
			continue
		}

		limits[[2]string{m.Of.Name, m.Pool}] = m.Repair.Max
	}

	for _, repair := range done {
		if repair.Action != RepairRefuse {
			count[[2]string{repair.Cluster, repair.Pool}]++
		}
	}

	replaces := func(repair Repair) bool { return repair.Action == RepairReplace }
	if !slices.ContainsFunc(repairs, replaces) {
		return repairs, nil
	}

	// A cluster that does not tell holds up nothing: its Lease does.
	live, _, err := r.RunHolders(ctx)
	if err != nil {
		return nil, err
	}

	for i, repair := range repairs {
		pool := [2]string{repair.Cluster, repair.Pool}

		switch {
		case !replaces(repair):
		case len(live) > 0:
			repairs[i] = repair.wait("%s; but a run works on it: %s", repair.Why, strings.Join(live, "; "))
		case count[pool] >= limits[pool]:
			repairs[i] = repair.wait("%s; but a run replaces at most %d of pool %s (repair.max), and the next run goes on", repair.Why,
				limits[pool], repair.Pool)
		default:
			count[pool]++
		}
	}

	return repairs, nil
}

// IsWell reports whether a worker is Ready, and its machine answers.
func (r Repairer) IsWell(ctx context.Context, repair Repair) (bool, error) {
	status, err := Status{Deployed: r.Deployed}.cluster(ctx, repair.Cluster)
	node := status.Node(repair.Node)

	return err == nil && node.Answers && node.Ready != "" && node.Ready != "no", err
}
