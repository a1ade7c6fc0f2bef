package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// class is a planned class of templates, before it is assigned to hosts.
type class struct {
	Template
	path     string
	base     int    // the VMID before the first
	basePath string // path of the key that sets base
}

// planClasses plans the classes of templates.
func (p *planner) planClasses() {
	if p.config.Templates != nil && len(p.config.Templates) == 0 {
		p.problems.Add("templates", nil, "is an empty map; add at least 1 entry")
	}

	for _, key := range slices.Sorted(maps.Keys(p.config.Templates)) {
		c := p.config.Templates[key]
		path := joinPath("templates", key)

		if !classFormat.pattern.MatchString(key) {
			p.problems.Add(path, nil, "%s", classFormat.remedy)
		}

		t := Template{
			Key: key, Class: key, Source: Source(c.Source), Talos: Talos{Platform: DefaultPlatform},
			Datastore: c.Datastore, ImageDatastore: c.ImageDatastore, Bridge: c.Bridge,
			Cores: c.Cores, MemoryMiB: c.MemoryMiB, DiskGiB: c.DiskGiB,
		}
		p.checkFormat(path+".datastore", c.Datastore, datastoreFormat)
		p.checkFormat(path+".imageDatastore", c.ImageDatastore, datastoreFormat)
		p.checkFormat(path+".bridge", c.Bridge, bridgeFormat)

		switch {
		case c.OS == "" || p.problems.Has(path+".os"): // reported before
		case c.OS == talosOS:
			p.planTalos(path, c, &t)
		default:
			p.planSystem(path, c, &t)
		}

		p.classes[key] = class{
			Template: t, path: path, base: cmp.Or(c.FirstVMID, p.ranges[RangeTemplates].First), basePath: path + ".firstVmid",
		}
	}
}

// planTalos plans a class of Talos.
func (p *planner) planTalos(path string, c TemplateConfig, t *Template) {
	p.rejectKeys(path, c.setKeys(), "is not a key of Talos' templates; set os as well, or remove it")

	t.Name, t.Version, t.Checksum = "talos-"+c.Version+"-"+t.Key, c.Version, c.Checksum
	if c.Version == "" {
		p.addMissing(path+".version", "is missing; set it, such as version: v1.14.4")
	} else if p.checkFormat(path+".version", c.Version, versionFormat) {
		if _, err := talos.ReleaseOf(c.Version); err != nil {
			p.problems.Add(path+".version", c.Version, "cannot be used: %s", err)
		}
	}

	if t.SecureBoot = c.SecureBoot != nil && *c.SecureBoot; t.SecureBoot {
		if err := talos.CheckSecureBoot(c.Version, t.Source == SourceISO); err != nil {
			p.problems.Add(path+".secureBoot", true, "is not possible: %s", err)
		}
	}

	p.checkFormat(path+".checksum", c.Checksum, checksumFormat)
	t.Extensions = p.planExtensions(path+".extensions", c)
	t.KernelArgs = p.planKernelArgs(path+".kernelArgs", c.KernelArgs)
	t.Secret = len(c.KernelArgs) > 0 && p.secrets.overlaps(path+".kernelArgs")
	p.checkFormat(path+".gpu.checksum", c.GPU.Checksum, checksumFormat)
}

// officialExtensions is the namespace of Talos' own system extensions.
const officialExtensions = "siderolabs/"

// planExtensions checks extensions and returns their full names, sorted.
func (p *planner) planExtensions(path string, c TemplateConfig) []string {
	var official []string
	if !c.AcceptAnyExtension {
		official = talos.AcceptedExtensions(c.Version)
	}

	var full []string

	for i, name := range c.Extensions {
		at := fmt.Sprintf("%s[%d]", path, i)
		if name == "" || !p.checkFormat(at, name, extensionFormat) {
			p.checkNotEmpty(at, name, "write it as qemu-guest-agent")

			continue
		}

		if !strings.Contains(name, "/") {
			name = officialExtensions + name
		}

		if slices.Contains(full, name) {
			p.problems.Add(at, c.Extensions[i], "is listed twice; remove one of the two")
		}
		// Without a GPU the service of the module never starts, and the boot waits for it.
		if strings.Contains(name, "nvidia") {
			p.problems.Add(at, c.Extensions[i], "hangs the boot of machines without a GPU; remove it, machines with one (gpuWorkers, controlPlane.gpu) get their own templates with it")
		} else if len(official) > 0 && !slices.Contains(official, name) {
			p.problems.Add(
				at, c.Extensions[i], "is not an official extension of Talos %s; %s", c.Version, suggestExtension(name, official),
			)
		}

		full = append(full, name)
	}

	slices.Sort(full)

	return full
}

// suggestExtension returns the remedy for an extension that is not official.
func suggestExtension(name string, official []string) string {
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

func (p *planner) planKernelArgs(path string, arguments []string) []string {
	for i, argument := range arguments {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.checkNotEmpty(at, argument, "write it as console=ttyS0")
		p.checkFormat(at, argument, kernelArgFormat)

		// It would replace the platform of the image (pkg/imager/imager.go of Talos 1.14).
		if platform, set := strings.CutPrefix(argument, "talos.platform="); set && platform != DefaultPlatform {
			p.problems.Add(at, argument, "is another platform than that of the images, %s, whose network data machines get from Proxmox; "+
				"remove it (docs/networking.md#meta-key-10)", DefaultPlatform)
		}
	}

	return slices.Clone(arguments)
}

// checkNotEmpty reports an empty entry of a list.
func (p *planner) checkNotEmpty(path, text, remedy string) {
	if text == "" && !p.problems.Has(path) {
		p.problems.Add(path, text, "is empty; %s, or remove it", remedy)
	}
}

// gpuVMIDOffset is the default offset of VMIDs of templates with a GPU driver from those of the class.
const gpuVMIDOffset = 50

// machineClass returns the class of a machine of a pool. For machines with a GPU it is a separate class with the
// driver, unless the class has it: the services of NVIDIA's would hang the boot of machines without a GPU.
func (p *planner) machineClass(g *pool, devices []Device) class {
	c := p.classes[g.Template]
	if c.Key == "" || c.System != nil {
		return c
	}

	extensions, suffix := kindExtensions(c.Version, devices)
	if slices.ContainsFunc(extensions, func(name string) bool { return !slices.Contains(c.Extensions, name) }) {
		c.Key += suffix
	}

	if g.driver.Flavour != "" {
		extensions = slices.Concat(extensions, g.driver.Extensions)
		c.Key += "-nvidia-" + g.driver.Flavour + "-" + g.driver.Track
	}

	if c.Key == c.Class {
		return c
	}

	gpuConfig := p.config.Templates[c.Class].GPU
	if gpuConfig.FirstVMID != 0 {
		c.base = gpuConfig.FirstVMID
	} else {
		c.base += gpuVMIDOffset
	}

	c.basePath = c.path + ".gpu.firstVmid"

	if taken, ok := p.classes[c.Key]; ok && !p.problems.Has(taken.path) {
		p.problems.Add(
			taken.path, nil, "is the name of the class for machines of template %s with a GPU; choose another one",
			g.Template,
		)
	}

	c.Name = "talos-" + c.Version + "-" + c.Key
	c.Checksum = gpuConfig.Checksum
	c.Driver = g.driver
	c.Extensions = slices.Concat(c.Extensions, extensions)
	slices.Sort(c.Extensions)
	c.Extensions = slices.Compact(c.Extensions)

	return c
}

// templateOnHost returns the template of a class on a host, and records it as used.
func (p *planner) templateOnHost(c class, host string) Template {
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
		why := "template " + c.Key + " is built over SSH"
		if c.System == nil {
			why += " (with source: import through the API alone)"
		}

		p.requireSSH(host, why)
	}

	if t.Source.HasVM() {
		t.VMID = c.base + h.Number
		p.claimTemplateVMID(c, h, t.VMID)
	}

	p.templates[id] = t

	return t
}

func (p *planner) claimTemplateVMID(c class, h Host, vmid int) {
	if p.problems.Has(h.Path+".number") || p.problems.Has(c.basePath) || p.problems.Has(RangeTemplates.path()) {
		return
	}

	if r := p.ranges[RangeTemplates]; !r.Contains(vmid) {
		p.problems.Add(c.basePath, c.base,
			"gives host %s (number %d) the VMID %d, outside the templates' range %s; choose another firstVmid, a smaller %s.number, or a wider %s",
			h.Name, h.Number, vmid, r, h.Path, RangeTemplates.path())

		return
	}

	by := claim{
		owner: "template " + c.Key + " on " + h.Name, group: c.path, path: c.basePath, count: 1, kind: RangeTemplates,
	}
	if held, taken := p.vmids.held[vmid]; taken && held.path == c.basePath {
		p.problems.Add(c.basePath, vmid, "would be %s and %s, two drivers of one class on one host; give one of their pools its own template, with another gpu.firstVmid", held.owner, by.owner)

		return
	}

	p.vmids.take(vmid, by)
}

// placeListedTemplates plans templates on the hosts that their classes list.
func (p *planner) placeListedTemplates() {
	for _, key := range slices.Sorted(maps.Keys(p.config.Templates)) {
		path := joinPath("templates", key) + ".hosts"
		hosts := p.config.Templates[key].Hosts

		for i, host := range hosts {
			at := fmt.Sprintf("%s[%d]", path, i)

			switch _, known := p.hosts[host]; {
			case slices.Contains(hosts[:i], host):
				p.problems.Add(at, host, "is listed twice; remove one of the two")
			case known:
				p.templateOnHost(p.classes[key], host)
			case len(p.hosts) > 0:
				p.problems.Add(at, host, "is not a host; %s", suggestName(host, p.hostNames, "hosts"))
			}
		}
	}
}

// usedTemplates returns the recorded templates, in order of VMID, then name, then host.
func (p *planner) usedTemplates() []Template {
	return slices.SortedFunc(maps.Values(p.templates), func(a, b Template) int {
		return cmp.Or(cmp.Compare(a.VMID, b.VMID), strings.Compare(a.Name, b.Name), strings.Compare(a.Host, b.Host))
	})
}
