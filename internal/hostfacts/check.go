package hostfacts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

// Needs is what a plan places on a host.
type Needs struct {
	Nodes []spec.Node // plain machines included
	// Clusters are the names of all the plan's clusters, sorted: a host reboots only while their machines run elsewhere.
	Clusters []string
}

// PlannedNeeds returns what a plan places on a host.
func PlannedNeeds(plan *spec.Plan, name string) Needs {
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

// NodeWithDevices returns a node with the devices at the PCI addresses: NVIDIA's GPUs, unless they have another kind.
func NodeWithDevices(host string, addresses []string, kinds map[string]string) spec.Node {
	node := spec.Node{VM: spec.VM{Host: host}}

	for _, pci := range addresses {
		device := spec.Device{Name: pci, Host: host, PCI: pci, Kind: spec.DeviceKind(kinds[pci])}
		if device.Kind == spec.NVIDIAGPU {
			node.GPUs = append(node.GPUs, device)
		} else {
			node.Devices = append(node.Devices, device)
		}
	}

	return node
}

// UsesDevices reports whether a planned machine uses a PCI device of the host, which needs its IOMMU.
func (n Needs) UsesDevices() bool {
	return slices.ContainsFunc(n.Nodes, func(node spec.Node) bool { return len(spec.PCIDevices(node.AllDevices())) > 0 })
}

// rebootWhenIdle lets preparation reboot a host while no machine runs on it.
const rebootWhenIdle = "whenIdle"

// WhenIdle reports whether preparation may reboot a host.
func WhenIdle(h spec.Host) bool { return h.Prep != nil && h.Prep.Reboot == rebootWhenIdle }

// MustMatchFiles reports whether the running system must match its files: machines use the host's devices, or it may be
// rebooted.
func (n Needs) MustMatchFiles(h spec.Host) bool { return n.UsesDevices() || WhenIdle(h) }

// Result is the result of checking a plan against a host's facts.
type Result struct {
	// Found holds warnings, and errors that block the plan and that no preparation fixes.
	Found problem.List
	// Changes lists what the preparation will change on the host.
	Changes []string
	// Pending lists what a reboot has to complete after the changes.
	Pending []string
	// Advice is about ZFS pools.
	Advice []string
}

// checker collects a Result.
type checker struct {
	Result

	facts *Facts
	host  spec.Host
	needs Needs
}

// Check checks a host's facts against the plan.
func Check(facts *Facts, h spec.Host, needs Needs) Result {
	if problems := CheckIdentity(facts, h); len(problems) > 0 {
		return Result{Found: problems}
	}

	c := &checker{facts: facts, host: h, needs: needs}
	c.Changes = facts.Prep.Changes
	c.Pending = facts.Prep.Pending
	c.checkVersion()
	c.checkPreparation()
	c.checkDevices()
	c.checkCapacity()
	c.checkPools()

	return c.Result
}

// CheckIdentity returns a problem if another host than the planned one answered. Its other facts then mean nothing.
func CheckIdentity(facts *Facts, h spec.Host) problem.List {
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
			h.Address, h.Name, cmp.Or(own, "unknown"), known, h.Name),
	}}
}

// CheckOwner returns a problem if another stack prepared the host.
func CheckOwner(facts *Facts, h spec.Host, owner string) problem.List {
	if h.Prep == nil || facts.Prep.Owner == "" || facts.Prep.Owner == owner || len(CheckIdentity(facts, h)) > 0 {
		return nil
	}

	return problem.List{{
		Path:    h.Path + ".prep",
		Message: fmt.Sprintf("is set, but %s is prepared by stack %s; take prep away in one of the two, or remove /var/lib/talos-proxmox/owner on the host if that stack is gone", h.Name, facts.Prep.Owner),
	}}
}

func (c *checker) problem(path, format string, arguments ...any) {
	c.Found.Add(path, nil, format, arguments...)
}

func (c *checker) warning(path, format string, arguments ...any) {
	c.Found.Warn(path, nil, format, arguments...)
}

// endOfPVE are the ends of life of accepted major versions (source: the FAQ of Proxmox VE's wiki).
var endOfPVE = map[int]string{oldestPVE: "2026-08-31"}

func (c *checker) checkVersion() {
	pve := c.facts.System.PVE
	major, _, _ := strings.Cut(pve, ".")

	number, err := strconv.Atoi(major)
	switch {
	case err != nil:
		c.problem(
			c.host.Path, "%s does not say which Proxmox VE it runs: is it a Proxmox host? `pveversion` tells", c.host.Name,
		)
	case number < oldestPVE:
		c.problem(
			c.host.Path, "%s runs Proxmox VE %s; upgrade it to %d or later: pve%dto%d --full shows what prevents it",
			c.host.Name, pve, oldestPVE, number, number+1,
		)
	case endOfPVE[number] != "":
		c.warning(
			c.host.Path, "%s runs Proxmox VE %s, which has had no fixes since %s; upgrade it: pve%dto%d --full shows what prevents it",
			c.host.Name, pve, endOfPVE[number], number, number+1,
		)
	}
}

func (c *checker) checkPreparation() {
	for _, text := range c.facts.Prep.Problems {
		// A missing device is reported with its path.
		if !strings.HasPrefix(text, "there is no PCI device at ") {
			c.problem(c.host.Path+".prep", "cannot be carried out on %s: %s", c.host.Name, text)
		}
	}

	if !c.needs.UsesDevices() && len(spec.PCIDevices(c.host.AllDevices())) == 0 && c.host.Prep != nil &&
		c.host.Prep.IOMMU && c.isIOMMUOff() {
		c.warning(
			c.host.Path+".prep.iommu", "prepares %s for passthrough, but %s; or set false", c.host.Name, c.firmwareHint(),
		)
	}
}

// isIOMMUOff reports whether the firmware offers no IOMMU.
func (c *checker) isIOMMUOff() bool {
	return len(c.facts.IOMMU.Firmware) == 0 && c.facts.IOMMU.Groups == 0
}

func (c *checker) firmwareHint() string {
	setting := "IOMMU (AMD-Vi) or VT-d"

	switch c.facts.System.CPUVendor {
	case "amd":
		setting = "IOMMU (AMD-Vi, often beside SVM)"
	case "intel":
		setting = "VT-d"
	}

	return fmt.Sprintf("its IOMMU is switched off in the firmware (neither /sys/firmware/acpi/tables/IVRS nor DMAR is there): switch on %s in the BIOS setup", setting)
}
