package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// class is a template's configuration, judged, and not yet on a host.
type class struct {
	Template
	path string
	base int    // the VMID before the first
	at   string // where base is set
}

// planClasses judges the classes of templates.
func (p *planner) planClasses() {
	for _, key := range slices.Sorted(maps.Keys(p.config.Templates)) {
		c := p.config.Templates[key]
		path := join("templates", key)

		if !classForm.pattern.MatchString(key) {
			p.problems.Add(path, nil, "%s", classForm.remedy)
		}

		t := Template{
			Key: key, Source: Source(c.Source), Talos: Talos{Platform: DefaultPlatform},
			Datastore: c.Datastore, ImageDatastore: c.ImageDatastore, Bridge: c.Bridge,
			Cores: c.Cores, MemoryMiB: c.MemoryMiB, DiskGiB: c.DiskGiB,
		}
		p.check(path+".datastore", c.Datastore, datastoreForm)
		p.check(path+".imageDatastore", c.ImageDatastore, datastoreForm)
		p.check(path+".bridge", c.Bridge, bridgeForm)

		switch {
		case c.OS == "" || p.problems.Has(path+".os"): // it is reported
		case c.OS == talosOS:
			p.planTalos(path, c, &t)
		default:
			p.planSystem(path, c, &t)
		}

		p.classes[key] = class{
			Template: t, path: path, base: cmp.Or(c.FirstVMID, p.ranges[RangeTemplates].First), at: path + ".firstVmid",
		}
	}
}

// planTalos judges what a class of Talos says about it.
func (p *planner) planTalos(path string, c TemplateConfig, t *Template) {
	p.refuseKeys(path, c.stated(), "is not a key of Talos' templates; set os as well, or remove it")

	t.Name, t.Version, t.Checksum = "talos-"+c.Version+"-"+t.Key, c.Version, c.Checksum
	if c.Version == "" {
		p.problems.Add(path+".version", nil, "is missing; set it, such as version: v1.14.4")
	} else if p.check(path+".version", c.Version, versionForm) {
		if _, err := talos.ReleaseOf(c.Version); err != nil {
			p.problems.Add(path+".version", c.Version, "cannot be used: %s", err)
		}
	}

	p.check(path+".checksum", c.Checksum, checksumForm)
	t.Extensions = p.extensions(path+".extensions", c)
	t.KernelArgs = p.kernelArgs(path+".kernelArgs", c.KernelArgs)
	t.Secret = len(c.KernelArgs) > 0 && p.secrets.touch(path+".kernelArgs")
	p.check(path+".gpu.checksum", c.GPU.Checksum, checksumForm)
}

// officialExtensions is the name space of Talos' own system extensions.
const officialExtensions = "siderolabs/"

// extensions returns the full names, sorted.
func (p *planner) extensions(path string, c TemplateConfig) []string {
	var official []string
	if !c.AcceptAnyExtension {
		official = talos.AcceptedExtensions(c.Version)
	}

	var full []string

	for i, name := range c.Extensions {
		at := fmt.Sprintf("%s[%d]", path, i)
		if name == "" || !p.check(at, name, extensionForm) {
			p.requireText(at, name, "write it as qemu-guest-agent")

			continue
		}

		if !strings.Contains(name, "/") {
			name = officialExtensions + name
		}

		if slices.Contains(full, name) {
			p.problems.Add(at, c.Extensions[i], "is listed twice; remove one of the two")
		}
		// Without its GPU the module's service never comes up, and the machine's boot waits for it.
		if strings.Contains(name, "nvidia") {
			p.problems.Add(at, c.Extensions[i], "hangs the boot of machines without a GPU; remove it, machines with one (gpuWorkers, controlPlane.gpu) get their own templates with it")
		} else if len(official) > 0 && !slices.Contains(official, name) {
			p.problems.Add(
				at, c.Extensions[i], "is not an official extension of Talos %s; %s", c.Version, otherExtension(name, official),
			)
		}

		full = append(full, name)
	}

	slices.Sort(full)

	return full
}

// otherExtension is the advice for a name that is not official.
func otherExtension(name string, official []string) string {
	const remedy = "set acceptAnyExtension: true if your own Image Factory has it"

	short := make([]string, len(official))
	for i := range official {
		short[i] = strings.TrimPrefix(official[i], officialExtensions)
	}

	if near := Nearest(strings.TrimPrefix(name, officialExtensions), short); near != "" {
		return "did you mean " + near + "? Otherwise " + remedy
	}

	return remedy + ", or remove it"
}

func (p *planner) kernelArgs(path string, arguments []string) []string {
	for i, argument := range arguments {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.requireText(at, argument, "write it as console=ttyS0")
		p.check(at, argument, kernelArgForm)
	}

	return slices.Clone(arguments)
}

// requireText reports an entry of a list without text.
func (p *planner) requireText(path, text, remedy string) {
	if text == "" && !p.problems.Has(path) {
		p.problems.Add(path, text, "is empty; %s, or remove it", remedy)
	}
}

// gpuOffset is how far from a class's own templates those for machines with a GPU are, unless the class says otherwise.
const gpuOffset = 50

// classOf returns the class a pool's machines are made from. For machines with a GPU it is the class's own with the
// driver: as its own class, since the driver's services hang the boot of machines without a GPU.
func (p *planner) classOf(g *pool) class {
	c := p.classes[g.Template]
	if g.driver.Flavour == "" || c.Key == "" {
		return c
	}

	own := p.config.Templates[c.Key].GPU
	if own.FirstVMID != 0 {
		c.base = own.FirstVMID
	} else {
		c.base += gpuOffset
	}

	c.at = c.path + ".gpu.firstVmid"

	c.Key += "-nvidia-" + g.driver.Flavour + "-" + g.driver.Track
	if taken, ok := p.classes[c.Key]; ok && !p.problems.Has(taken.path) {
		p.problems.Add(
			taken.path, nil, "is the name of what machines of template %s with a GPU are made from; choose another one",
			g.Template,
		)
	}

	c.Name = "talos-" + c.Version + "-" + c.Key
	c.Checksum = own.Checksum
	c.Driver = g.driver
	c.Extensions = slices.Concat(c.Extensions, g.driver.Extensions)
	slices.Sort(c.Extensions)
	c.Extensions = slices.Compact(c.Extensions)

	return c
}

// onHost returns the template of a class on a host and notes that it is in use.
func (p *planner) onHost(c class, host string) Template {
	h, placed := p.hosts[host]
	if c.Key == "" || !placed {
		return Template{}
	}

	id := [2]string{c.Key, host}
	if t, ok := p.templates[id]; ok {
		return t
	}

	t := c.Template

	t.Host = host
	if t.Source == SourceImage {
		t.VMID = c.base + h.Number
		p.needShell(host, "template "+c.Key+" is built over SSH")
		p.claimTemplate(c, h, t.VMID)
	}

	p.templates[id] = t

	return t
}

func (p *planner) claimTemplate(c class, h Host, vmid int) {
	if p.problems.Has(h.Path+".number") || p.problems.Has(c.at) || p.problems.Has(RangeTemplates.path()) {
		return
	}

	if r := p.ranges[RangeTemplates]; !r.Holds(vmid) {
		p.problems.Add(c.at, c.base,
			"gives host %s (number %d) the VMID %d, outside the templates' range %s; choose another firstVmid, a smaller %s.number, or a wider %s",
			h.Name, h.Number, vmid, r, h.Path, RangeTemplates.path())

		return
	}

	by := claim{owner: "template " + c.Key + " on " + h.Name, group: c.path, path: c.at, count: 1, kind: RangeTemplates}
	if held, taken := p.vmids.held[vmid]; taken && held.path == c.at {
		p.problems.Add(c.at, vmid, "would be %s and %s, two drivers of one class on one host; give one of their pools its own template, with another gpu.firstVmid", held.owner, by.owner)

		return
	}

	p.vmids.take(vmid, by)
}

// placeTemplates plans templates on the hosts that their classes name.
func (p *planner) placeTemplates() {
	for _, key := range slices.Sorted(maps.Keys(p.config.Templates)) {
		path := join("templates", key) + ".hosts"
		hosts := p.config.Templates[key].Hosts

		for i, host := range hosts {
			at := fmt.Sprintf("%s[%d]", path, i)

			switch _, known := p.hosts[host]; {
			case slices.Contains(hosts[:i], host):
				p.problems.Add(at, host, "is listed twice; remove one of the two")
			case known:
				p.onHost(p.classes[key], host)
			case len(p.hosts) > 0:
				p.problems.Add(at, host, "is not a host; %s", suggestName(host, p.hostNames, "hosts"))
			}
		}
	}
}

// templatesInUse returns the templates that machines are made from, in order of VMID, then name, then host.
func (p *planner) templatesInUse() []Template {
	return slices.SortedFunc(maps.Values(p.templates), func(a, b Template) int {
		return cmp.Or(cmp.Compare(a.VMID, b.VMID), strings.Compare(a.Name, b.Name), strings.Compare(a.Host, b.Host))
	})
}
