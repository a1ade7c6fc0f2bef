package live

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/report"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/timeline"
)

// Levels of a state, the classes of the page's style.
const (
	levelOK      = "ok"
	levelCare    = "care"
	levelUnknown = "unknown"
)

// levelOf returns the level of a cluster's status.
func levelOf(status string) string {
	switch status {
	case request.StatusOK:
		return levelOK
	case request.StatusUnknown:
		return levelUnknown
	default:
		return levelCare
	}
}

// Freshness says how old the overview is, and what is being done about it.
func (s Snapshot) Freshness() string {
	switch {
	case s.Asked.IsZero() && s.Problem == "":
		return "Asks the clusters and Proxmox for the first time."
	case s.Asked.IsZero():
		return "Nothing was answered yet."
	}

	text := fmt.Sprintf("As of %s, %s ago", clock(s.Asked), s.Age())
	if asking := s.Now.Sub(s.Collecting).Truncate(time.Second); !s.Collecting.IsZero() && asking > 0 {
		text += fmt.Sprintf("; asks again since %s", asking)
	}

	return text + "."
}

func clock(t time.Time) string { return t.Local().Format("15:04:05") }

// hosts returns the hosts that Proxmox tells of.
func (s Snapshot) hosts() []request.PlacementHost {
	if s.Placement == nil {
		return nil
	}

	return s.Placement.Hosts
}

// NotAsked says what is unknown, and why.
func (s Snapshot) NotAsked() (list []string) {
	if s.Placement != nil {
		list = slices.Clone(s.Placement.NotAsked)
	}

	if slices.ContainsFunc(s.hosts(), func(h request.PlacementHost) bool {
		return h.Status == request.HostOnline && h.MemoryBytes == 0
	}) {
		list = append(list, "the load of hosts: Proxmox tells it with Sys.Audit on /nodes (docs/status.md#a-live-page)")
	}

	return list
}

// states returns what runs, for the picture.
func (s Snapshot) states() report.States {
	states := report.States{Machines: map[string]report.State{}, Hosts: map[string]report.HostState{}}

	if s.Placement != nil {
		for _, m := range s.Placement.Machines {
			states.Machines[m.Node] = machineState(m)
		}
	}

	for _, c := range s.Clusters {
		for _, n := range c.Nodes {
			states.Machines[n.Name] = nodeState(c, n, states.Machines[n.Name])
		}
	}

	for _, h := range s.hosts() {
		states.Hosts[h.Name] = report.HostState{Level: hostLevel(h), Text: h.Status, Load: loads(h)}
	}

	return states
}

// machineState is what Proxmox knows of a machine.
func machineState(m request.PlacedMachine) report.State {
	state := report.State{Host: m.Host, Text: m.Status, Level: levelOK}

	switch {
	case m.Host == "":
		state.Text, state.Level = "Proxmox has no such VM", levelUnknown
	case m.HostStatus != request.HostOnline:
		state.Text, state.Level = state.Text+", its host is "+m.HostStatus, levelUnknown
	case m.Status != "running":
		state.Level = levelCare
	}

	if m.PlannedHost != "" {
		state.Notes = append(state.Notes, "planned on "+m.PlannedHost)
	}

	if m.HA != "" {
		state.Notes = append(state.Notes, "high availability: "+m.HA)
	}

	return state
}

// nodeState adds what the cluster knows of a node.
func nodeState(c request.ClusterStatus, n request.NodeStatus, state report.State) report.State {
	word := n.Ready // no CNI

	switch {
	case !n.Answers && n.Ready == "":
		word, state.Level = "Talos does not answer", levelUnknown
	case n.Ready == "yes":
		word = "Ready"
	case n.Ready == "":
		word = "not known in Kubernetes"
	case n.Ready == "no":
		word = "not Ready"
	}

	if state.Text != "" && (state.Text != "running" || word != "Ready") {
		word = state.Text + ", " + word
	}

	state.Text = word

	if n.Cordoned {
		state.Text += ", cordoned"
	}

	for _, problem := range c.Care {
		if problem.Path == n.Name && state.Level == levelOK {
			state.Level = levelCare
		}
	}

	versions := []string{}
	if n.Talos != "" {
		versions = append(versions, "Talos "+n.Talos)
	}

	if n.Kubelet != "" {
		versions = append(versions, "kubelet "+n.Kubelet)
	}

	notes := []string{strings.Join(versions, " · ")}
	if role := c.EtcdRole(n.Name); role != "" {
		notes = append(notes, "etcd: "+role)
	}

	for _, offer := range n.GPUs {
		notes = append(notes, "GPUs: "+offer.String())
	}

	notes = slices.DeleteFunc(notes, func(note string) bool { return note == "" })
	state.Notes = append(notes, state.Notes...)

	return state
}

func hostLevel(h request.PlacementHost) string {
	if h.Status == request.HostOnline {
		return levelOK
	}

	return levelUnknown
}

// loads returns what a host's machines and its own programs use; nothing if Proxmox does not tell it.
func loads(h request.PlacementHost) []report.Load {
	if h.MemoryBytes == 0 {
		return nil
	}

	const gib = 1 << 30

	busy := int(h.CPU*100 + .5)

	return []report.Load{
		{Of: "cores", Percent: busy, Text: fmt.Sprintf("%d %% of %d", busy, h.Cores)},
		{
			Of: "memory", Percent: int(h.MemoryUsedBytes * 100 / h.MemoryBytes),
			Text: fmt.Sprintf("%.0f of %.0f GiB", float64(h.MemoryUsedBytes)/gib, float64(h.MemoryBytes)/gib),
		},
	}
}

// IsRunning reports whether a run changes the stack, as far as its log says.
func (s Snapshot) IsRunning() bool {
	return s.Run != nil && !s.Run.Ended && !s.Run.IsSilent(s.Now)
}

// RunHeading says in a few words what the stack's last run does, or did.
func (s Snapshot) RunHeading() string {
	switch r := s.Run; {
	case s.RunProblem != "" || r == nil:
		return "Last run"
	case s.IsRunning():
		return "A run is in progress"
	case !r.Ended:
		return "A run is silent"
	case r.Failed:
		return "The last run failed"
	default:
		return "The last run ended"
	}
}

// RunText says what the stack's last run does, or did.
func (s Snapshot) RunText() string {
	r := s.Run

	switch {
	case s.RunProblem != "":
		return "The log of runs cannot be read: " + s.RunProblem
	case r == nil && len(s.Pending) == 0:
		return "No run of this stack was logged in this folder."
	case r == nil, r.Ended && len(s.Pending) > 0 && s.Asked.After(r.Last):
		return "The state has operations that were begun: a run that is not logged here does them, or was killed: " +
			strings.Join(s.Pending, ", ")
	}

	took := func(until time.Time) string { return until.Sub(r.Started).Truncate(time.Second).String() }

	switch {
	case r.IsSilent(s.Now):
		return fmt.Sprintf("A run that began at %s has written no event for %s: it waits, or was killed (then talos-proxmox recover %s "+
			"removes what it left). %s.", moment(r.Started), s.Now.Sub(r.Last).Truncate(time.Second), s.Stack, counts(r))
	case r.Preview && r.Ended && r.Failed:
		return fmt.Sprintf("The last preview failed at %s; it changed nothing.", moment(r.Last))
	case r.Preview && r.Ended:
		return fmt.Sprintf("An up was previewed at %s, and has changed nothing yet: it has %d steps.", moment(r.Last), len(r.Steps))
	case r.Preview:
		return fmt.Sprintf("A preview is in progress for %s: %d steps so far. It changes nothing.", took(s.Now), len(r.Steps))
	case r.Ended && r.Failed:
		return fmt.Sprintf("The last up failed at %s after %s: %s.", moment(r.Last), took(r.Last), counts(r))
	case r.Ended:
		return fmt.Sprintf("The last up ended at %s after %s: %s.", moment(r.Last), took(r.Last), counts(r))
	default:
		return fmt.Sprintf("An up is in progress for %s: %s.", took(s.Now), counts(r))
	}
}

// RunLevel is the level of the last run.
func (s Snapshot) RunLevel() string {
	switch r := s.Run; {
	case s.RunProblem != "" || r != nil && r.Failed:
		return levelUnknown
	case r != nil && r.IsSilent(s.Now), r == nil && len(s.Pending) > 0:
		return levelCare
	default:
		return levelOK
	}
}

// counts says how many steps a run has done.
func counts(r *timeline.Run) string {
	running, failed := len(r.Running()), 0

	for _, step := range r.Steps {
		if step.Failed {
			failed++
		}
	}

	words := []string{fmt.Sprintf("%d done", len(r.Steps)-running-failed)}

	for _, one := range []struct {
		number int
		word   string
	}{{running, "running"}, {failed, "failed"}, {r.Unchanged, "unchanged"}, {r.Refreshed, "refreshed"}} {
		if one.number > 0 {
			words = append(words, fmt.Sprintf("%d %s", one.number, one.word))
		}
	}

	return strings.Join(words, ", ")
}

// moment writes a time, with its day unless that is today.
func moment(t time.Time) string {
	if t.Local().Format(time.DateOnly) == time.Now().Local().Format(time.DateOnly) {
		return clock(t)
	}

	return t.Local().Format(time.DateTime)
}
