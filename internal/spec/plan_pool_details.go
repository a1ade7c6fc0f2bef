package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// checkPool checks the settings that all machines of a pool share.
func (p *planner) checkPool(g *pool) {
	p.checkFormat(g.path+".datastore", g.Datastore, datastoreFormat)
	p.checkFormat(g.path+".resourcePool", g.ResourcePool, resourcePoolFormat)

	if p.checkFormat(g.path+".cpuType", g.CPUType, cpuFormat) && g.inCluster() &&
		slices.Contains(unsupportedProcessors, g.CPUType) {
		p.problems.Add(g.path+".cpuType", g.CPUType, "lacks what Talos needs (x86-64-v2); use host or x86-64-v2-AES")
	}

	p.checkSizes(g.path, g, g.Cores, g.MemoryMiB, g.DiskGiB)
	p.checkHostResources(g)
	p.checkGPUUse(g)

	template, known := p.classes[g.Template]
	if !known && len(p.classes) > 0 {
		p.problems.Add(
			g.path+".template", g.Template, "is not a template; %s",
			suggestName(g.Template, slices.Collect(maps.Keys(p.classes)), "templates"),
		)
	}

	switch {
	case !g.inCluster():
		p.checkMachinePool(g)
	case template.System != nil:
		p.problems.Add(
			g.path+".template", g.Template, "is a template of %s, and machines of clusters run Talos; set one of Talos",
			template.System.Title(),
		)
	}

	if !known || !g.linked {
		return
	}

	if template.Source == SourceISO {
		p.problems.Add(
			g.path+".template", g.Template,
			"has source: iso, so there is no template to make linked clones of; set clone: full, or source: import",
		)
	} else if datastore := cmp.Or(g.Datastore, template.Datastore); datastore != template.Datastore {
		p.problems.Add(
			g.path+".datastore", datastore,
			"is not the template's (%s), on which linked clones must stay; leave it out, or set clone: full",
			template.Datastore,
		)
	}
}

// checkHostResources checks the settings that bind machines to cores and pages of their host. Huge pages
// need NUMA.
func (p *planner) checkHostResources(g *pool) {
	if at := g.path + ".cpuAffinity"; g.CPUAffinity != "" {
		if cores, ok := canonicalCPUs(g.CPUAffinity); ok {
			p.checkRoot(at, g.CPUAffinity, "remove it")
			g.CPUAffinity = cores
		} else {
			p.problems.Add(at, g.CPUAffinity, "is not a set of cores; write it as 0-7,16-23")
		}
	}

	at := g.path + ".hugepagesMiB"

	switch g.HugepagesMiB {
	case 0:
		return
	case 2, 1024:
		p.checkRoot(at, g.HugepagesMiB, "remove it")
	default:
		p.problems.Add(at, g.HugepagesMiB, "is not a size of huge pages; use 2 or 1024")
	}

	g.NUMA = true
}

// unsupportedProcessors are processor types of Proxmox below x86-64-v2.
var unsupportedProcessors = []string{
	"486", "pentium", "pentium2", "pentium3", "athlon", "coreduo", "core2duo", "kvm32", "kvm64", "qemu32", "qemu64",
	"phenom", "x86-64-v1",
}

// checkSizes checks sizes against Talos' minimum and the template; 0 = not set.
func (p *planner) checkSizes(path string, g *pool, cores, memoryMiB, diskGiB int) {
	minCores, minMemory, minDisk := minimum(g.role)
	for _, size := range []struct {
		key          string
		value, least int
	}{{"cores", cores, minCores}, {"memoryMiB", memoryMiB, minMemory}, {"diskGiB", diskGiB, minDisk}} {
		if at := path + "." + size.key; size.value != 0 && size.value < size.least && !p.problems.Has(at) {
			p.problems.Add(
				at, size.value, "is below Talos' minimum for a %s; use at least %d", roleNames[g.role], size.least,
			)
		}
	}

	if at, pages := path+".memoryMiB", g.HugepagesMiB; pages > 0 && memoryMiB%pages != 0 && !p.problems.Has(at) {
		p.problems.Add(at, memoryMiB, "is not a multiple of the pool's hugepagesMiB, %d; choose one", pages)
	}

	at := path + ".diskGiB"
	if t, known := p.classes[g.Template]; known && t.Source.HasVM() && diskGiB != 0 && diskGiB < t.DiskGiB &&
		!p.problems.Has(at) {
		p.problems.Add(
			at, diskGiB,
			"is less than the disk of template %s, and disks do not shrink; use at least %d, or a smaller %s.diskGiB",
			g.Template, t.DiskGiB, t.path,
		)
	}
}

var roleNames = map[Role]string{RoleControlPlane: "control plane", RoleWorker: "worker"}

// suggestName returns the remedy for an unknown name; group is the key under which such names are set.
func suggestName(name string, known []string, group string) string {
	slices.Sort(known)

	near := Nearest(name, known)
	switch {
	case near != "":
		return "did you mean " + near + "? Otherwise add it to " + group
	case len(known) > 0:
		return "choose from " + strings.Join(known, ", ") + ", or add it to " + group
	default:
		return "add it to " + group
	}
}

// poolTags returns the tags of a pool's machines, sorted.
func (p *planner) poolTags(g *pool) []string {
	tags := []string{"talos", string(g.role), "cluster-" + g.cluster}
	if !g.inCluster() {
		tags = []string{"machine"}
		if system := p.classes[g.Template].System; system != nil {
			tags = append(tags, system.OS)
		}
	}

	for i, tag := range g.Tags {
		at := fmt.Sprintf("%s.tags[%d]", g.path, i)
		p.checkNotEmpty(at, tag, "write it as gpu")
		p.checkFormat(at, tag, tagFormat)
		tags = append(tags, tag)
	}

	slices.Sort(tags)

	return slices.Compact(tags)
}

// checkLabels checks and returns the labels of Kubernetes nodes.
func (p *planner) checkLabels(path string, labels map[string]string, g *pool) map[string]string {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := joinPath(path, p.redacted(path, key))
		if !labelNameFormat.pattern.MatchString(key) {
			p.problems.Add(at, nil, "%s", labelNameFormat.remedy)
		} else if isSystemLabel(key, g.role) {
			p.problems.Add(at, nil, "is a label that Kubernetes or Talos sets on every node; remove it")
		} else if g.hasTopology && isTopologyLabel(key) {
			p.problems.Add(at, nil, "follows from the cluster's proxmox.region and the node's host; remove it")
		} else if g.role == RoleWorker && talos.RestrictedLabel(key) {
			p.problems.Add(
				at, nil, "is a label that Kubernetes does not let a worker set on itself; use your own prefix, such as example.org/, "+
					"or node.kubernetes.io/, or set it with kubectl: such labels are kept",
			)
		}

		p.checkFormat(at, labels[key], labelValueFormat)
	}

	return labels
}

// isSystemLabel reports whether the kubelet or Talos itself sets a label: removing it from the configuration would
// remove it from the node.
func isSystemLabel(key string, role Role) bool {
	switch key {
	case "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return true
	case "node-role.kubernetes.io/control-plane":
		return role == RoleControlPlane
	default:
		return strings.HasPrefix(key, "extensions.talos.dev/")
	}
}

// isSystemTaint reports whether Kubernetes' controllers set and remove a taint by the node's condition.
func isSystemTaint(key string) bool {
	return strings.HasPrefix(key, "node.kubernetes.io/") || strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/")
}

// parseTaints returns taints as Talos writes them: key → value:Effect, or key → Effect.
func (p *planner) parseTaints(path string, taints []string) map[string]string {
	if len(taints) == 0 {
		return nil
	}

	parsed := map[string]string{}

	for i, taint := range taints {
		at := fmt.Sprintf("%s[%d]", path, i)
		if p.isUndecrypted(at) {
			continue
		}

		head, effect, found := strings.Cut(taint, ":")

		key, value, hasValue := strings.Cut(head, "=")
		switch {
		case !found || !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, effect) ||
			!labelNameFormat.pattern.MatchString(key) || !labelValueFormat.pattern.MatchString(value):
			p.problems.Add(
				at, taint,
				"is not a taint; write it as key=value:NoSchedule or key:NoSchedule (NoSchedule, PreferNoSchedule or NoExecute)",
			)
		case isSystemTaint(key):
			p.problems.Add(at, taint, "has a key that Kubernetes manages by the node's condition; use one of your own, such as example.org/dedicated")
		case parsed[key] != "":
			p.problems.Add(
				at, taint, "is a second taint with the key %s, and Talos accepts one; remove one of the two", p.redacted(at, key),
			)
		case hasValue:
			parsed[key] = value + ":" + effect
		default:
			parsed[key] = effect
		}
	}

	return parsed
}
