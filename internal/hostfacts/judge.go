package hostfacts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// Needs are what a plan puts on a host.
type Needs struct {
	Nodes []spec.Node // machines of no cluster are among them
	// Clusters are the names of all the plan's clusters, sorted: a host reboots only while their machines run elsewhere.
	Clusters []string
}

// NeedsOf returns what a plan puts on a host.
func NeedsOf(plan *spec.Plan, name string) Needs {
	needs := Needs{}
	for _, cluster := range plan.Clusters {
		needs.Clusters = append(needs.Clusters, cluster.Name)
	}

	for _, m := range plan.Members() {
		if m.Host == name {
			needs.Nodes = append(needs.Nodes, m.Node)
		}
	}

	slices.Sort(needs.Clusters)

	return needs
}

// UsesGPUs says whether a machine of the plan has a GPU of the host.
func (n Needs) UsesGPUs() bool {
	return slices.ContainsFunc(n.Nodes, func(node spec.Node) bool { return len(node.GPUs) > 0 })
}

// Reboots of a host that is prepared: never, or while no machine runs on it.
const rebootWhenIdle = "whenIdle"

// WhenIdle says whether a host may be rebooted.
func WhenIdle(h spec.Host) bool { return h.Prep != nil && h.Prep.Reboot == rebootWhenIdle }

// MustRun says whether the host's running system must be as its files say: machines use its GPUs, or it may be
// rebooted.
func (n Needs) MustRun(h spec.Host) bool { return n.UsesGPUs() || WhenIdle(h) }

// Judgement is what a host's facts mean for a plan.
type Judgement struct {
	// Found is what prevents the plan, and no preparation fixes it, and warnings.
	Found problem.List
	// Changes are what the preparation is going to change on the host.
	Changes []string
	// Pending are what a reboot of the host has to complete, after the changes.
	Pending []string
	// Advice is about ZFS pools.
	Advice []string
}

// judge gathers a judgement.
type judge struct {
	Judgement

	facts *Facts
	host  spec.Host
	needs Needs
}

// Judge says whether a host fits the plan.
func Judge(facts *Facts, h spec.Host, needs Needs) Judgement {
	if problems := Mistaken(facts, h); len(problems) > 0 {
		return Judgement{Found: problems}
	}

	j := &judge{facts: facts, host: h, needs: needs}
	j.Changes = facts.Prep.Changes
	j.Pending = facts.Prep.Pending
	j.version()
	j.preparation()
	j.gpus()
	j.capacity()
	j.pools()

	return j.Judgement
}

// Mistaken says that the host that answered is not the one that was meant: nil, or the problem. What else it says then
// means nothing for the plan.
func Mistaken(facts *Facts, h spec.Host) problem.List {
	own, node := facts.System.Hostname, facts.System.Node
	if own == h.Name && node == h.Name {
		return nil
	}

	known := "it is not a node of Proxmox VE now (does pve-cluster run there?)"
	if node != "" {
		known = "Proxmox VE knows it as " + node
	}

	return problem.List{{
		Path: h.Path + ".address",
		Message: fmt.Sprintf("%s is not %s: the own name of the host that answers there is %s, and %s; set the address of %s, or the host that answers",
			h.Address, h.Name, orUnknown(own), known, h.Name),
	}}
}

// Owner says who a host belongs to when the stack is not the one that prepared it: nil, or the problem.
func Owner(facts *Facts, h spec.Host, owner string) problem.List {
	if h.Prep == nil || facts.Prep.Owner == "" || facts.Prep.Owner == owner || len(Mistaken(facts, h)) > 0 {
		return nil
	}

	return problem.List{{
		Path:    h.Path + ".prep",
		Message: fmt.Sprintf("is set, but %s is prepared by stack %s; take prep away in one of the two, or remove /var/lib/talos-proxmox/owner on the host if that stack is gone", h.Name, facts.Prep.Owner),
	}}
}

func (j *judge) problem(path, format string, arguments ...any) {
	j.Found.Add(path, nil, format, arguments...)
}

func (j *judge) warning(path, format string, arguments ...any) {
	j.Found.Warn(path, nil, format, arguments...)
}

// endOfPVE are the days from which major versions that are still accepted get no fixes (the FAQ of Proxmox VE's wiki).
var endOfPVE = map[int]string{leastPVE: "2026-08-31"}

func (j *judge) version() {
	pve := j.facts.System.PVE
	major, _, _ := strings.Cut(pve, ".")

	number, err := strconv.Atoi(major)
	switch {
	case err != nil:
		j.problem(
			j.host.Path, "%s does not say which Proxmox VE it runs: is it a Proxmox host? `pveversion` tells", j.host.Name,
		)
	case number < leastPVE:
		j.problem(
			j.host.Path, "%s runs Proxmox VE %s; upgrade it to %d or later: pve%dto%d --full shows what prevents it",
			j.host.Name, pve, leastPVE, number, number+1,
		)
	case endOfPVE[number] != "":
		j.warning(
			j.host.Path, "%s runs Proxmox VE %s, which has had no fixes since %s; upgrade it: pve%dto%d --full shows what prevents it",
			j.host.Name, pve, endOfPVE[number], number, number+1,
		)
	}
}

func (j *judge) preparation() {
	for _, text := range j.facts.Prep.Problems {
		// A missing GPU is reported with its path.
		if !strings.HasPrefix(text, "there is no PCI device at ") {
			j.problem(j.host.Path+".prep", "cannot be carried out on %s: %s", j.host.Name, text)
		}
	}

	if !j.needs.UsesGPUs() && len(j.host.GPUs) == 0 && j.host.Prep != nil && j.host.Prep.IOMMU && j.iommuOff() {
		j.warning(
			j.host.Path+".prep.iommu", "prepares %s for passthrough, but %s; or set false", j.host.Name, j.firmwareSetting(),
		)
	}
}

// iommuOff says whether the firmware offers no IOMMU.
func (j *judge) iommuOff() bool { return len(j.facts.IOMMU.Firmware) == 0 && j.facts.IOMMU.Groups == 0 }

func (j *judge) firmwareSetting() string {
	setting := "IOMMU (AMD-Vi) or VT-d"

	switch j.facts.System.CPUVendor {
	case "amd":
		setting = "IOMMU (AMD-Vi, often beside SVM)"
	case "intel":
		setting = "VT-d"
	}

	return fmt.Sprintf("its IOMMU is switched off in the firmware (neither /sys/firmware/acpi/tables/IVRS nor DMAR is there): switch on %s in the BIOS setup", setting)
}

func (j *judge) gpus() {
	off := j.iommuOff()
	if off && len(j.host.GPUs) > 0 {
		j.problem(j.host.Path+".gpus", "cannot be passed through on %s: %s", j.host.Name, j.firmwareSetting())
	}

	prepared := j.host.Prep != nil && j.host.Prep.IOMMU
	if !off && !prepared && j.facts.IOMMU.Groups == 0 && len(j.host.GPUs) > 0 {
		words := "iommu=pt"
		if j.facts.System.CPUVendor == "intel" {
			words = "intel_iommu=on iommu=pt"
		}

		j.problem(j.host.Path+".gpus",
			"cannot be passed through: %s runs without its IOMMU; set prep: {} to have it prepared, or add %s to %s and reboot",
			j.host.Name, words, cmp.Or(j.facts.System.CommandLineFile, "the kernel command line"))
	}

	for _, gpu := range j.host.GPUs {
		j.gpu(gpu, prepared)
	}
}

func (j *judge) gpu(gpu spec.GPU, prepared bool) {
	path := j.host.GPUPath(gpu) + ".pci"
	functions := j.facts.Functions(gpu.PCI)

	main := slices.IndexFunc(
		functions, func(d Device) bool { return d.Vendor == vendorNVIDIA && strings.HasPrefix(d.Class, classDisplay) },
	)
	switch {
	case len(functions) == 0:
		j.problem(path, "%s is not there on %s: %s", gpu.PCI, j.host.Name, j.whereNVIDIA())

		return
	case main < 0:
		j.problem(path, "%s on %s is not an NVIDIA GPU but %s: %s", gpu.PCI, j.host.Name, labels(functions), j.whereNVIDIA())

		return
	}

	j.generation(gpu, functions[main])

	slot := j.facts.Functions(functions[0].slot())
	if shared := j.shared(gpu, slot); len(shared) > 0 {
		j.problem(path,
			"%s on %s shares IOMMU group %s with %s, which the host would lose; use another slot, or switch on ACS in the BIOS setup",
			gpu.PCI, j.host.Name, functions[main].Group, labels(shared))
	}

	for _, d := range slot {
		if !prepared && d.Driver != "" && d.Driver != driverVFIO {
			j.problem(
				path, "%s on %s is bound to %s; set prep: {} to have it bound to vfio-pci, or do so manually and reboot",
				d.Address, j.host.Name, d.Driver,
			)
		}
	}

	if twin := j.twin(functions[main]); prepared && twin != "" {
		j.warning(
			path, "%s on %s has the same ids as %s, which is bound to vfio-pci along with it; set it among the gpus, too",
			gpu.PCI, j.host.Name, twin,
		)
	}
}

// generation compares the stated generation of a GPU, which its driver follows from, with the card's name. Requests of
// talosops do not state it: the preview has judged it.
func (j *judge) generation(gpu spec.GPU, card Device) {
	actual := talos.GenerationOf(card.Name)
	if actual == "" || gpu.Generation == "" || actual == gpu.Generation {
		return
	}

	path, name := j.host.GPUPath(gpu)+".generation", card.Name[strings.Index(card.Name, "NVIDIA"):]

	for _, node := range j.needs.Nodes {
		driver := talos.Driver{Flavour: node.Template.Driver.Flavour, Track: node.Template.Driver.Track}
		if slices.ContainsFunc(node.GPUs, func(g spec.GPU) bool { return g.PCI == gpu.PCI }) &&
			!slices.Contains(talos.Drivers(node.Template.Version, actual), driver) {
			j.Found.Add(path, gpu.Generation, "is not that of %s on %s, %s, which the driver of %s (%s) does not drive; set %s",
				gpu.PCI, j.host.Name, name, node.Name, driver, actual)

			return
		}
	}

	j.Found.Warn(path, gpu.Generation, "is not that of %s on %s, %s; set %s", gpu.PCI, j.host.Name, name, actual)
}

// shared returns the devices that share a group with a GPU and can be given away with it by no one: neither its own
// functions, nor bridges, nor GPUs of the same machine.
func (j *judge) shared(gpu spec.GPU, slot []Device) []Device {
	together := []string{gpu.PCI}

	for _, node := range j.needs.Nodes {
		if slices.ContainsFunc(node.GPUs, func(g spec.GPU) bool { return g.PCI == gpu.PCI }) {
			for _, g := range node.GPUs {
				together = append(together, g.PCI)
			}
		}
	}

	var shared []Device

	for _, d := range j.facts.Devices {
		sameGroup := d.Group != "" && slices.ContainsFunc(slot, func(own Device) bool { return own.Group == d.Group })

		own := slices.ContainsFunc(together, func(pci string) bool {
			device, _, _ := strings.Cut(pci, ".")

			return d.slot() == device
		})
		if sameGroup && !own && !strings.HasPrefix(d.Class, classBridge) {
			shared = append(shared, d)
		}
	}

	return shared
}

// twin returns another device of the same kind that is not among the host's GPUs; ids bind them all.
func (j *judge) twin(gpu Device) string {
	for _, d := range j.facts.Devices {
		listed := slices.ContainsFunc(
			j.host.GPUs, func(g spec.GPU) bool { return slices.Contains(j.facts.Functions(g.PCI), d) },
		)
		if d.Vendor == gpu.Vendor && d.Device == gpu.Device && !listed {
			return d.Address
		}
	}

	return ""
}

func (j *judge) whereNVIDIA() string {
	var found []string

	for _, d := range j.facts.Devices {
		if d.Vendor == vendorNVIDIA && strings.HasPrefix(d.Class, classDisplay) {
			found = append(found, d.label())
		}
	}

	if len(found) == 0 {
		return "it has no NVIDIA GPU; `lspci -nn` lists its devices: is the card seated and powered?"
	}

	return "its NVIDIA GPUs are " + strings.Join(found, ", ") + "; set where it is now"
}
