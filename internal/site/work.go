package site

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/running"
	"talos-proxmox/internal/spec"
)

// machine is a planned machine and where its network is configured.
type machine struct {
	spec.VM

	Cluster string // empty = none
	network spec.Network
	at      string // the path of its cluster, or of its pool where it belongs to none: clusters[0]
	new     bool   // it is still to be made
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
	own       map[int]running.Machine
}

func newWork(plan *spec.Plan, stack Stack) work {
	w := work{own: stack.Machines}

	add := func(n spec.VM, cluster string, network spec.Network, at string) {
		running, there := stack.Machines[n.VMID]
		if there && !n.HostPinned {
			n.Host = running.Host // it stays where it is
		}

		w.machines = append(w.machines, machine{n, cluster, network, at, !there})
	}

	for i, cluster := range plan.Clusters {
		for _, n := range cluster.Nodes() {
			at := fmt.Sprintf("clusters[%d]", i)
			if dot := strings.LastIndex(n.Path, "."); dot > 0 {
				at = n.Path[:dot]
			}

			add(n.VM, cluster.Name, cluster.Network, at)
		}
	}

	for _, m := range plan.Machines {
		add(m.VM, "", m.Network, m.Path)
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
	at := func(datastore, path string) string {
		if datastore == m.Template.Datastore {
			return "templates." + classOf(m.Template) + ".datastore"
		}

		return path + ".datastore"
	}

	list := []disk{{m.Datastore, at(m.Datastore, m.Path), m.DiskGiB}}
	for i, extra := range m.ExtraDisks {
		path := at(extra.Datastore, fmt.Sprintf("%s.extraDisks[%d]", m.Path, i))
		list = append(list, disk{extra.Datastore, path, extra.SizeGiB})
	}

	return list
}

type disk struct {
	datastore, path string
	sizeGiB         int
}

// cards are a machine's network cards, each with where it is set.
func (m machine) cards() []card {
	list := []card{{m.network.Bridge, m.network.VLAN, m.at + ".network"}}
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
