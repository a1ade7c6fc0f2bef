package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// machine is a planned machine; new if it does not exist yet.
type machine struct {
	spec.Member

	new bool
}

// template is a planned template; built if it exists.
type template struct {
	spec.Template

	path  string
	built bool
}

// talosImages returns the templates with the Image Factory's images that are to be downloaded.
func (p planned) talosImages() []template {
	return slices.DeleteFunc(slices.Clone(p.images), func(t template) bool { return t.System != nil })
}

// imageTitle names the system in the template's image.
func (t template) imageTitle() string {
	if t.System != nil {
		return t.System.Title()
	}

	return t.Version
}

// planned is what a plan uses on its site, and what of that is new.
type planned struct {
	machines      []machine
	templates     []template
	images        []template // whose images are to be downloaded
	accounts      []account
	stackMachines map[int]vmdiff.Machine
}

func newPlanned(plan *spec.Plan, stack Stack) planned {
	p := planned{stackMachines: stack.Machines}

	for _, m := range plan.Members() {
		running, exists := stack.Machines[m.VMID]
		if exists && !m.HostPinned {
			m.Host = running.Host // a calculated placement never moves a machine
		}

		p.machines = append(p.machines, machine{m, !exists})
		p.addAccount(m)
	}

	added := map[string]bool{}

	for _, t := range plan.Templates {
		path, downloaded := "templates."+t.Class, stack.Downloaded(t)
		if !t.Downloaded() {
			downloaded = true // the host downloads it during the build
		}

		if id := strings.Join([]string{stack.Image(t), t.Host, t.ImageDatastore}, " "); !downloaded && !added[id] {
			added[id] = true

			p.images = append(p.images, template{Template: t, path: path})
		}
		// A template of another image is rebuilt.
		if t.Source.HasVM() {
			p.templates = append(p.templates, template{t, path, downloaded && stack.Built(t)})
		}
	}

	return p
}

// machine returns the planned machine with a VMID.
func (p planned) machine(vmid int) (machine, bool) {
	i := slices.IndexFunc(p.machines, func(m machine) bool { return m.VMID == vmid })
	if i < 0 {
		return machine{}, false
	}

	return p.machines[i], true
}

// hasNew reports whether anything of the plan does not exist yet.
func (p planned) hasNew() bool {
	return len(p.images) > 0 || slices.ContainsFunc(p.machines, func(m machine) bool { return m.new }) ||
		slices.ContainsFunc(p.templates, func(t template) bool { return !t.built })
}

// newOn returns the names of what is new on a host.
func (p planned) newOn(host string) []string {
	var names []string

	for _, m := range p.machines {
		if m.new && m.Host == host {
			names = append(names, m.Name)
		}
	}

	for _, t := range p.templates {
		if !t.built && t.Host == host {
			names = append(names, "template "+t.Key)
		}
	}

	return names
}

// disks returns a machine's disks with the configuration path of each datastore: the template's if the pool sets none.
func (m machine) disks() []disk {
	var list []disk

	for i, d := range m.Disks() {
		path := m.KeyPath("datastore")
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

// cards returns a machine's network cards with their configuration paths.
func (m machine) cards() []card {
	network := m.Parent() + ".network"
	if m.OverridePaths["network.bridge"]+m.OverridePaths["network.vlan"] != "" {
		network = m.Path + ".network"
	}

	list := []card{{m.Network.Bridge, m.Network.VLAN, network}}
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
