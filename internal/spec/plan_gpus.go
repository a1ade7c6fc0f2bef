package spec

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// gpuNameFormat is Proxmox's format of a mapping's name.
var gpuNameFormat = format{
	regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{1,62}$`),
	"cannot be the name of a PCI mapping in Proxmox; use letters, digits, _ and -, from 2 to 63, with a letter first",
}

// gpuKind are the common properties of all GPUs of a name, with the path of the first.
type gpuKind struct {
	GPU
	path string
}

// CheckZFSArc reports a size of the ZFS cache that ZFS does not accept.
func (c *Prep) CheckZFSArc(at string, found *problem.List) {
	const minimum = 64 << 20 // ZFS' own

	if c == nil || c.ZFSArcMaxGiB == nil || *c.ZFSArcMaxGiB == 0 || found.Has(at) {
		return
	}

	if c.ZFSArcMaxBytes() < minimum {
		found.Add(
			at, *c.ZFSArcMaxGiB, "is less than ZFS accepts (64 MiB); use at least 0.0625, or 0 to leave ZFS unchanged",
		)
	}
}

// ZFSArcMaxBytes returns the maximum size of the ZFS cache; ZFSArcMaxGiB must be set.
func (c Prep) ZFSArcMaxBytes() int64 { return int64(*c.ZFSArcMaxGiB * (1 << 30)) }

// planGPUs checks the GPUs of a host and returns the valid ones, sorted by address, and their paths.
func (p *planner) planGPUs(path string, c HostConfig) ([]GPU, map[string]string) {
	var gpus []GPU

	at := map[string]string{}

	for i, g := range c.GPUs {
		here := fmt.Sprintf("%s[%d]", path, i)
		gpu := GPU{Name: g.Name, Host: c.Name, Generation: g.Generation, Raw: g.Passthrough == "raw"}
		named := p.checkFormat(here+".name", g.Name, gpuNameFormat)

		address, err := ParsePCI(g.PCI)
		if err != nil && !p.problems.Has(here+".pci") {
			p.problems.Add(here+".pci", g.PCI, "%s", err)
		}

		gpu.PCI = address
		if gpu.Raw {
			p.checkRaw(here + ".passthrough")
		}

		if named {
			p.checkGPUKind(here, gpu)
		}

		if !named || err != nil {
			continue
		}

		if j := slices.IndexFunc(gpus, func(o GPU) bool { return sameDevice(o.PCI, gpu.PCI) }); j >= 0 {
			p.problems.Add(
				here+".pci", g.PCI, "is the device of %s too (%s); remove one of the two", at[gpus[j].PCI], gpus[j].PCI,
			)

			continue
		}

		at[gpu.PCI] = here
		gpus = append(gpus, gpu)
	}

	slices.SortFunc(gpus, func(a, b GPU) int { return strings.Compare(a.PCI, b.PCI) })

	return gpus, at
}

// checkRaw checks whether the stack may pass devices through by address.
func (p *planner) checkRaw(path string) {
	if p.options.CheckRaw == nil {
		return
	}

	if err := p.options.CheckRaw(); err != nil {
		p.problems.Add(path, "raw", "cannot be used: %s", err)
	}
}

// checkGPUKind reports a GPU that differs from others of its name: they must be alike, since Proxmox chooses among
// them.
func (p *planner) checkGPUKind(path string, gpu GPU) {
	first, known := p.gpuKinds[gpu.Name]
	if !known {
		p.gpuKinds[gpu.Name] = gpuKind{gpu, path}

		return
	}

	if gpu.Generation != first.Generation && gpu.Generation != "" && first.Generation != "" {
		p.problems.Add(
			path+".generation", gpu.Generation,
			"differs from %s, which is %s and has the same name; give each kind of GPU its own name", first.path,
			first.Generation,
		)
	}

	if gpu.Raw != first.Raw {
		p.problems.Add(
			path+".passthrough", nil,
			"differs from %s, which has the same name; use one way for all GPUs of a name, or give them their own names",
			first.path,
		)
	}
}

// checkGPUUse checks the GPU settings of a pool, except placement, and sets its driver.
func (p *planner) checkGPUUse(g *pool) {
	if g.gpu == "" {
		if g.kind == RangeControlPlanes && (g.gpuUse.TimeSlicing != 0 || g.gpuUse.GPUsPerNode > 1 ||
			g.gpuUse.Driver != DriverConfig{}) {
			p.problems.Add(
				g.path+".gpu", nil,
				"is missing although GPU settings are set; set it, such as gpu: rtx4000, or remove gpusPerNode, timeSlicing and driver",
			)
		}

		return
	}

	kind, known := p.gpuKinds[g.gpu]
	if !known {
		if at := g.path + ".gpu"; !p.problems.Has(at) {
			p.problems.Add(
				at, g.gpu, "is not a GPU of any host%s; %s", p.describeGPUs(),
				suggestName(g.gpu, slices.Collect(maps.Keys(p.gpuKinds)), "hosts[].gpus"),
			)
		}

		return
	}

	if g.gpuUse.TimeSlicing == 1 {
		p.problems.Add(g.path+".timeSlicing", 1, "means the whole GPU; leave it out, or use at least 2")
	}

	template, ok := p.classes[g.Template]
	if !ok || kind.Generation == "" || p.problems.Has(template.path+".version") {
		return
	}

	driverConfig := g.gpuUse.Driver

	driver, err := talos.DriverFor(template.Version, kind.Generation, driverConfig.Flavour, driverConfig.Track)
	switch {
	case err != nil && driverConfig != DriverConfig{}:
		p.problems.Add(g.path+".driver", nil, "cannot be used: %s", err)
	case err != nil:
		p.problems.Add(g.path+".gpu", g.gpu, "cannot be used: %s", err)
	default:
		g.driver = Driver{Flavour: driver.Flavour, Track: driver.Track, Extensions: driver.Extensions()}
	}
}

// describeGPUs returns the GPUs of all hosts for messages: (hosts: pve1 has "a2000").
func (p *planner) describeGPUs() string {
	var all []string

	for _, name := range p.hostNames {
		var names []string
		for _, gpu := range p.hosts[name].GPUs {
			names = append(names, problem.EncodeValue(gpu.Name))
		}

		if len(names) > 0 {
			slices.Sort(names)
			all = append(all, name+" has "+strings.Join(slices.Compact(names), ", "))
		}
	}

	if len(all) == 0 {
		return " (no host lists gpus)"
	}

	return " (hosts: " + strings.Join(all, "; ") + ")"
}
