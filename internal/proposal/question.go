package proposal

import (
	"cmp"
	"errors"
	"strings"
)

// Question is a question with its default.
type Question struct {
	// Flag is the flag that answers it, without hyphens.
	Flag string
	Text string
	// Default is the answer that is proposed; empty = there is none, and Missing says what to set.
	Default, Missing string
	// Problem is what is wrong with the last answer; empty = none yet.
	Problem string
}

// Flag is a flag that answers a question.
type Flag struct{ Name, Usage string }

// Flags returns the flags of all questions.
func Flags() []Flag {
	return []Flag{
		{"hosts", "hosts to use, separated by commas (default: all that are online)"},
		{"host-addresses", "addresses of hosts, where Proxmox does not say: pve1=10.0.0.2,pve2=10.0.0.3"},
		{"cluster", "name of the cluster (default: the stack's)"},
		{"datastore", "datastore of machines' disks (default: one that all hosts have)"},
		{"image-datastore", "datastore of downloaded images (default: one that all hosts have)"},
		{"generations", "architectures of GPUs by device, where the name does not tell: 10de:27b0=ada"},
		{"bridge", "bridge of the machines (default: the one with the hosts' router)"},
		{"vlan", "VLAN of the machines on the bridge, 1 to 4094 (default: none)"},
		{"cidr", "network of the machines (default: that of the hosts on the bridge)"},
		{"gateway", "router of the machines, or none (default: that of the hosts)"},
		{"dns", "name servers of the machines, separated by commas, or default for Talos' own (default: those of the hosts)"},
		{"addresses", "addresses for the cluster that no DHCP server gives out: FIRST-LAST"},
	}
}

// none is the answer that there is none.
const none = "none"

// ask asks a question and has the answer used; an answer with an error is asked for again, or becomes a problem.
func (p *planner) ask(q Question, use func(answer string) error) {
	text, given := p.Given[q.Flag]

	for p.err == nil {
		answer := cmp.Or(text, q.Default)

		if !given && p.Ask != nil {
			if answer, p.err = p.Ask(q); p.err != nil {
				return
			}

			answer = cmp.Or(answer, q.Default)
		}

		err := errors.New("is missing: " + q.Missing)
		if answer != "" {
			err = use(answer)
		}

		switch {
		case err == nil:
			return
		case given || p.Ask == nil:
			p.problems.Add("--"+q.Flag, valueOf(answer), "%s", err)

			return
		}

		q.Problem = err.Error()
	}
}

// valueOf returns an answer as the value of a problem.
func valueOf(answer string) any {
	if answer == "" {
		return nil
	}

	return answer
}

// splitList returns the parts of a list.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// splitPairs returns the pairs of a list: a=b,c=d.
func splitPairs(text string) map[string]string {
	pairs := map[string]string{}

	for _, part := range splitList(text) {
		key, value, _ := strings.Cut(part, "=")
		pairs[key] = value
	}

	return pairs
}
