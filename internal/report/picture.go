package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"slices"

	"talos-proxmox/internal/spec"
)

// colours is how many clusters the page tells apart by colour; all by name.
const colours = 6

// States is what runs of a plan, by names of machines and hosts. What it does not name is drawn as planned.
type States struct {
	Machines map[string]State
	Hosts    map[string]HostState
}

// State is what runs of a machine.
type State struct {
	Host  string // that it is on; empty = not known, it is drawn on its planned one
	Level string // ok, care or unknown
	Text  string // Ready, stopped, …
	Notes []string
}

// HostState is the state of a host.
type HostState struct {
	Level string // as of a machine
	Text  string // online, offline, …
	// Load is empty if it is not known.
	Load []Load
}

// Load is how much of a host's resource is used.
type Load struct {
	Of      string // cores, memory
	Percent int
	Text    string // 12 of 96 GiB
}

// Picture returns the page's picture: clusters, and hosts with their machines where they run.
func Picture(p *spec.Plan, s States) (template.HTML, error) {
	v := newView(p)
	v.apply(s)

	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, "picture", v); err != nil {
		return "", fmt.Errorf("unable to draw stack %q: %w", p.Stack, err)
	}

	return template.HTML(b.String()), nil //nolint:gosec // a template has escaped it
}

// Style returns the style of pages with the picture.
func Style() (template.CSS, error) {
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, "style", nil); err != nil {
		return "", fmt.Errorf("unable to write the style of pages: %w", err)
	}

	return template.CSS(b.String()), nil //nolint:gosec // it has no values
}

// apply adds states, and moves machines to the hosts that they are on. A host that the plan does not have gets a box,
// too.
func (v *view) apply(s States) {
	for i := range v.Machines {
		m := &v.Machines[i]
		m.State = s.Machines[m.Name]
		m.Host = cmp.Or(m.State.Host, m.Host)

		if !slices.ContainsFunc(v.Hosts, func(h host) bool { return h.Name == m.Host }) {
			v.Hosts = append(v.Hosts, host{Name: m.Host})
		}
	}

	for i := range v.Hosts {
		h := &v.Hosts[i]
		h.State = s.Hosts[h.Name]
		h.Machines = nil

		for _, m := range v.Machines {
			if m.Host == h.Name {
				h.Machines = append(h.Machines, m)
			}
		}

		sortByVMID(h.Machines)
	}
}

func sortByVMID(machines []machine) {
	slices.SortStableFunc(machines, func(a, b machine) int { return cmp.Compare(a.VMID, b.VMID) })
}
