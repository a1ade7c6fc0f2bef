package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// machine is a planned machine; new says that it is still to be made.
type machine struct {
	spec.Member

	new bool
}

// template is a planned template; built says that a run has built it.
type template struct {
	spec.Template

	path  string
	built bool
}

// talosImages are those of the Image Factory that are still to be downloaded.
func (w work) talosImages() []image {
	return slices.DeleteFunc(slices.Clone(w.images), func(i image) bool { return i.System != nil })
}

// image is a file that is downloaded to a datastore of a host.
type image struct {
	spec.Template

	path string
}

// title is what people call what the image holds.
func (i image) title() string {
	if i.System != nil {
		return i.System.Title()
	}

	return i.Version
}

// work is what a plan needs of its site, and what of that is new.
type work struct {
	machines  []machine
	templates []template
	images    []image // those that are still to be downloaded
	accounts  []account
	own       map[int]vmdiff.Machine
}

func newWork(plan *spec.Plan, stack Stack) work {
	w := work{own: stack.Machines}

	for _, m := range plan.Members() {
		running, there := stack.Machines[m.VMID]
		if there && !m.HostPinned {
			m.Host = running.Host // it stays where it is
		}

		w.machines = append(w.machines, machine{m, !there})
		w.addAccount(m)
	}

	seen := map[string]bool{}

	for _, t := range plan.Templates {
		path, downloaded := "templates."+classOf(t), stack.Downloaded(t)
		if !t.Downloaded() {
			downloaded = true // by its host, when it builds the template
		}

		if id := strings.Join([]string{stack.Image(t), t.Host, t.ImageDatastore}, " "); !downloaded && !seen[id] {
			seen[id] = true

			w.images = append(w.images, image{t, path})
		}
		// A template of another image is rebuilt.
		if t.Source == spec.SourceImage {
			w.templates = append(w.templates, template{t, path, downloaded && stack.Built(t)})
		}
	}

	return w
}

// classOf is the key of a template's class in the configuration.
func classOf(t spec.Template) string {
	if t.Driver.Flavour == "" {
		return t.Key
	}

	return strings.TrimSuffix(t.Key, "-nvidia-"+t.Driver.Flavour+"-"+t.Driver.Track)
}

// anything says whether something of the plan is still to be made.
func (w work) anything() bool {
	return len(w.images) > 0 || slices.ContainsFunc(w.machines, func(m machine) bool { return m.new }) ||
		slices.ContainsFunc(w.templates, func(t template) bool { return !t.built })
}

// on returns what is new on a host, by name.
func (w work) on(host string) []string {
	var names []string

	for _, m := range w.machines {
		if m.new && m.Host == host {
			names = append(names, m.Name)
		}
	}

	for _, t := range w.templates {
		if !t.built && t.Host == host {
			names = append(names, "template "+t.Key)
		}
	}

	return names
}

// disks are a machine's by datastore, each with where that is set: a pool's is its template's unless it says so.
func (m machine) disks() []disk {
	var list []disk

	for i, d := range m.Disks() {
		path := m.At("datastore")
		if i > 0 && d.Datastore != m.Datastore {
			path = fmt.Sprintf("%s.extraDisks[%d].datastore", m.Path, i-1)
		}

		list = append(list, disk{d.Datastore, path, d.SizeGiB})
	}

	return list
}

type disk struct {
	datastore, path string
	sizeGiB         int
}

// cards are a machine's network cards, each with where it is set.
func (m machine) cards() []card {
	list := []card{{m.Network.Bridge, m.Network.VLAN, m.Parent() + ".network"}}
	for i, extra := range m.ExtraNICs {
		list = append(list, card{extra.Bridge, extra.VLAN, fmt.Sprintf("%s.extraNICs[%d]", m.Path, i)})
	}

	return list
}

type card struct {
	bridge string
	vlan   int
	path   string
}
