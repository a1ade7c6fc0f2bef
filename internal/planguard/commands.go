package planguard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// commandEffect is what a changed command does, about what precedes the end of its name: a node, machine, host, cluster
// or template; several is for more than one of them, if more than the word cluster differs.
type commandEffect struct{ end, one, several string }

// commandEffects are in the order of an update. Pulumi shows only which input of a command changed.
var commandEffects = []commandEffect{
	{"-apply", "%s: its settings and files are changed as planned", "%s: their settings and files are changed as planned"},
	{
		"-reboot", "%s is rebooted while no VM runs there, if a change needs it",
		"%s are rebooted while no VM runs there, if a change needs it",
	},
	{
		"-verify", "%s: whether machines can use its devices is checked",
		"%s: whether machines can use their devices is checked",
	},
	{
		"-build", "template %s is built again; machines keep what they have",
		"templates %s are built again; machines keep what they have",
	},
	{tokens.OfUpgrade, "cluster %s: Talos is upgraded on nodes where it differs from the plan", ""},
	{"-kubernetes", "cluster %s: Kubernetes is upgraded where it differs from the plan", ""},
	{
		tokens.OfConfiguration, "%s gets a changed machine configuration",
		"%s get a changed machine configuration, one after the other",
	},
	{tokens.OfBootstrap, "cluster %s: control planes are checked before they join etcd", ""},
	{"-marked", "cluster %s: labels and taints of nodes are set where they differ from the plan", ""},
	{tokens.OfCNI, "cluster %s: Cilium is installed as planned", ""},
	{"-access", "cluster %s: ClusterRoles of groups are set as planned", ""},
	{
		"-proxmox", "cluster %s: its Secrets with accounts of Proxmox are renewed",
		"clusters %s: their Secrets with accounts of Proxmox are renewed",
	},
	{tokens.OfGate, "cluster %s: up waits until it is healthy", "clusters %s: up waits until they are healthy"},
	{tokens.OfGitOps, "cluster %s: Flux is installed as planned", ""},
	{"-reconciled", "cluster %s: Flux is asked to reconcile, and up waits for it", ""},
	{tokens.OfAutoscaled, "%s: what the autoscaler adds from now on is as planned", ""},
	{tokens.OfHA, "%s: Proxmox' high availability is set as planned", ""},
	{tokens.OfFirewall, "%s: Proxmox' firewall is set as planned", ""},
	{
		tokens.OfLeave, "%s: how it leaves its cluster if it is removed is recorded",
		"%s: how they leave their clusters if they are removed is recorded",
	},
	{tokens.MachineGuard, "what destroy verifies before it removes machines is recorded", ""},
}

// effectOf returns the row of a command, and what it is about.
func effectOf(u urn.URN) (row int, subject string) {
	row = slices.IndexFunc(commandEffects, func(e commandEffect) bool { return strings.HasSuffix(u.Name(), e.end) })
	if row < 0 {
		return row, u.Name()
	}

	return row, strings.TrimSuffix(u.Name(), commandEffects[row].end)
}

// Commands returns a line for each kind of command that the plan changes or replaces. Of machine configurations it is
// what changes in them, as far as the program said it.
func (p *Preview) Commands() []string {
	var others []string

	subjects := make([][]string, len(commandEffects))

	for _, s := range p.Steps {
		isCommand := s.URN.Type() == tokens.LocalCommand || s.URN.Type() == tokens.RemoteCommand
		if !isCommand || s.Operation != Update && s.Operation != Replace {
			continue
		}

		switch row, subject := effectOf(s.URN); {
		case row < 0:
			others = append(others, fmt.Sprintf("%s is executed again (changed: %s)", subject, strings.Join(s.Properties, ", ")))
		case commandEffects[row].end != tokens.OfConfiguration || !p.saysWhatChanges(subject):
			subjects[row] = append(subjects[row], subject)
		}
	}

	lines := slices.Clone(p.Configurations)

	for row, names := range subjects {
		if len(names) == 0 {
			continue
		}

		slices.SortFunc(names, problem.CompareNatural)

		text := commandEffects[row].one
		if len(names) > 1 {
			text = cmp.Or(commandEffects[row].several, strings.Replace(text, "cluster %s", "clusters %s", 1))
		}

		lines = append(lines, strings.Replace(text, "%s", vmdiff.JoinNames(names), 1))
	}

	return append(lines, others...)
}

// saysWhatChanges reports whether the program said what changes in a node's machine configuration.
func (p *Preview) saysWhatChanges(node string) bool {
	return slices.ContainsFunc(p.Configurations, func(line string) bool {
		nodes, _ := cutConfiguration(line)

		return slices.Contains(nodes, node)
	})
}

// cutConfiguration returns the nodes of a line of [Preview.Configurations], and its changes.
func cutConfiguration(line string) (nodes []string, changes string) {
	names, changes, _ := strings.Cut(strings.TrimPrefix(line, configurationChanges), ": ")

	return strings.Split(names, ", "), changes
}

// configurationChanges begins the program's messages about what changes in machine configurations; withRestart ends
// their lines about what takes effect with a restart.
const (
	configurationChanges = "changes in the machine configuration of "
	withRestart          = " (with a restart)"
)

// restartedByConfiguration returns the nodes that a changed machine configuration restarts.
func (p *Preview) restartedByConfiguration() (restarted []string) {
	for _, line := range p.Configurations {
		if nodes, changes := cutConfiguration(line); strings.Contains(changes, withRestart) {
			restarted = append(restarted, nodes...)
		}
	}

	return restarted
}
