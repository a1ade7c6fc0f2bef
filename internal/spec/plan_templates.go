package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// class is a template's configuration, judged, and not yet on a host.
type class struct {
	Template
	path string
	base int // the VMID before the first
}

// planClasses judges the classes of templates.
func (p *planner) planClasses() {
	for _, key := range slices.Sorted(maps.Keys(p.config.Templates)) {
		c := p.config.Templates[key]
		path := join("templates", key)
		t := Template{
			Key: key, Name: "talos-" + c.Version + "-" + key, Source: Source(c.Source), Version: c.Version, Arch: c.Arch, Platform: "nocloud",
			Datastore: c.Datastore, ImageDatastore: c.ImageDatastore, Checksum: c.Checksum, Bridge: c.Bridge,
			Cores: c.Cores, MemoryMiB: c.MemoryMiB, DiskGiB: c.DiskGiB,
		}
		if !classForm.pattern.MatchString(key) {
			p.problems.report(path, nil, "%s", classForm.wayOut)
		}
		if p.check(path+".version", c.Version, versionForm) {
			p.checkTalos(path+".version", c.Version)
		}
		p.check(path+".datastore", c.Datastore, datastoreForm)
		p.check(path+".imageDatastore", c.ImageDatastore, datastoreForm)
		p.check(path+".checksum", c.Checksum, checksumForm)
		p.check(path+".bridge", c.Bridge, bridgeForm)
		t.Extensions = p.extensions(path+".extensions", c.Extensions)
		t.KernelArgs = p.kernelArgs(path+".kernelArgs", c.KernelArgs)
		p.classes[key] = class{Template: t, path: path, base: cmp.Or(c.FirstVMID, p.ranges[rangeTemplates].first)}
	}
}

// checkTalos reports a Talos version that is not supported, whether or not a cluster uses it.
func (p *planner) checkTalos(path, version string) {
	known := p.options.Compatibility
	if known == nil {
		return
	}
	if _, ok := known.DefaultKubernetes(version); ok {
		return
	}
	if err := known.Check(version, "v1.35.0"); err != nil {
		p.problems.report(path, version, "cannot be used: %s", err)

		return
	}
	p.problems.report(path, version, "is not a supported Talos version; state one that docs/compatibility.md lists")
}

// extensions returns the full names, sorted.
func (p *planner) extensions(path string, names []string) []string {
	var full []string
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		if name == "" || !p.check(at, name, extensionForm) {
			p.requireText(at, name, "write it as qemu-guest-agent")

			continue
		}
		if !strings.Contains(name, "/") {
			name = "siderolabs/" + name
		}
		if slices.Contains(full, name) {
			p.problems.report(at, names[i], "is listed twice; remove one of the two")
		}
		// Without its GPU the module's service never comes up, and the machine's boot waits for it.
		if strings.Contains(name, "nvidia") {
			p.problems.report(at, names[i], "hangs the boot of machines without a GPU, and there are no GPU workers yet; remove it")
		}
		full = append(full, name)
	}
	slices.Sort(full)

	return full
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
func (p *planner) requireText(path, text, wayOut string) {
	if text == "" && !p.problems.has(path) {
		p.problems.report(path, text, "is empty; %s, or remove it", wayOut)
	}
}

// onHost returns the template of a class on a host and notes that it is in use.
func (p *planner) onHost(key, host string) Template {
	c, known := p.classes[key]
	h, placed := p.hosts[host]
	if !known || !placed {
		return Template{}
	}
	id := [2]string{key, host}
	if t, ok := p.templates[id]; ok {
		return t
	}
	t := c.Template
	t.Host = host
	if t.Source == SourceImage {
		t.VMID = c.base + h.Number
		p.needShell(host, key)
		p.claimTemplate(c, h, t.VMID)
	}
	p.templates[id] = t

	return t
}

func (p *planner) claimTemplate(c class, h hostEntry, vmid int) {
	at := c.path + ".firstVmid"
	if p.problems.has(h.path+".number") || p.problems.has(at) || p.problems.has(rangeTemplates.path()) {
		return
	}
	if r := p.ranges[rangeTemplates]; !r.holds(vmid) {
		p.problems.report(at, c.base, "gives host %s (number %d) the VMID %d, outside the templates' range %s; state another firstVmid, a smaller %s.number, or a wider %s",
			h.Name, h.Number, vmid, r, h.path, rangeTemplates.path())

		return
	}
	p.vmids.take(vmid, claim{owner: "template " + c.Key + " on " + h.Name, group: c.path, path: at, count: 1, kind: rangeTemplates})
}

// templatesInUse returns the templates that machines are made from, in order of VMID, then name, then host.
func (p *planner) templatesInUse() []Template {
	return slices.SortedFunc(maps.Values(p.templates), func(a, b Template) int {
		return cmp.Or(cmp.Compare(a.VMID, b.VMID), strings.Compare(a.Name, b.Name), strings.Compare(a.Host, b.Host))
	})
}
