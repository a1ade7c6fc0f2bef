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

// UsesDevices reports whether a planned machine uses a device of the host.
func (n Needs) UsesDevices() bool {
	return slices.ContainsFunc(n.Nodes, func(node spec.Node) bool { return len(node.AllDevices()) > 0 })
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

	if !c.needs.UsesDevices() && len(c.host.AllDevices()) == 0 && c.host.Prep != nil && c.host.Prep.IOMMU &&
		c.isIOMMUOff() {
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

func (c *checker) checkDevices() {
	devices := c.host.AllDevices()
	if len(devices) == 0 {
		return
	}

	list := c.host.Path + ".gpus"
	if len(c.host.GPUs) == 0 {
		list = c.host.Path + ".devices"
	}

	off := c.isIOMMUOff()
	if off {
		c.problem(list, "cannot be passed through on %s: %s", c.host.Name, c.firmwareHint())
	}

	prepared := c.host.Prep != nil && c.host.Prep.IOMMU
	if !off && !prepared && c.facts.IOMMU.Groups == 0 {
		arguments := "iommu=pt"
		if c.facts.System.CPUVendor == "intel" {
			arguments = "intel_iommu=on iommu=pt"
		}

		c.problem(list,
			"cannot be passed through: %s runs without its IOMMU; set prep: {} to have it prepared, or add %s to %s and reboot",
			c.host.Name, arguments, cmp.Or(c.facts.System.CommandLineFile, "the kernel command line"))
	}

	for _, device := range devices {
		c.checkDevice(device, prepared)
	}
}

// vendors are the vendors of GPUs, with what they are called in messages.
var vendors = map[spec.DeviceKind]struct{ id, title string }{
	spec.NVIDIAGPU: {vendorNVIDIA, "an NVIDIA GPU"}, spec.IntelGPU: {"8086", "an Intel GPU"}, spec.AMDGPU: {"1002", "an AMD GPU"},
}

func isDisplay(d Device, vendor string) bool {
	return d.Vendor == vendor && strings.HasPrefix(d.Class, classDisplay)
}

func (c *checker) checkDevice(device spec.Device, prepared bool) {
	path := c.host.DevicePath(device) + ".pci"
	functions := c.facts.Functions(device.PCI)
	vendor, isGPU := vendors[device.Kind]

	missing := "`lspci -Dnn` there lists its devices; a virtual function (SR-IOV) is there once the host has created it (sriov_numvfs)"
	other := "set its kind, or its address"

	if device.Kind == spec.NVIDIAGPU {
		missing = c.nvidiaHint()
		other = missing
	}

	first := 0
	if isGPU {
		first = slices.IndexFunc(functions, func(d Device) bool { return isDisplay(d, vendor.id) })
	}

	switch {
	case len(functions) == 0:
		c.problem(path, "%s is not there on %s: %s", device.PCI, c.host.Name, missing)

		return
	case first < 0:
		c.problem(path, "%s on %s is not %s but %s: %s", device.PCI, c.host.Name, vendor.title, labels(functions), other)

		return
	case !isGPU && slices.ContainsFunc(functions, func(d Device) bool { return isDisplay(d, vendorNVIDIA) }):
		c.problem(
			path, "%s on %s is %s, which needs its driver; list it under gpus", device.PCI, c.host.Name, labels(functions),
		)

		return
	case device.Kind == spec.NVIDIAGPU:
		c.checkGeneration(device, functions[first])
	}

	passed := c.passedFunctions(device)
	if shared := c.sharedDevices(device); len(shared) > 0 {
		c.problem(path,
			"%s on %s shares IOMMU group %s with %s, which the host would lose; use another slot, or switch on ACS in the BIOS setup",
			device.PCI, c.host.Name, functions[first].Group, labels(shared))
	}

	if !device.Bound() {
		return
	}

	for _, d := range passed {
		if !prepared && d.Driver != "" && d.Driver != driverVFIO {
			c.problem(
				path, "%s on %s is bound to %s; set prep: {} to have it bound to vfio-pci, or do so manually and reboot",
				d.Address, c.host.Name, d.Driver,
			)
		}
	}

	if twin := c.unlistedTwin(functions[first]); prepared && twin != "" {
		list := "gpus"
		if device.Kind != spec.NVIDIAGPU {
			list = "devices"
		}

		c.warning(
			path, "%s on %s has the same ids as %s, which is bound to vfio-pci along with it; set it among the %s, too",
			device.PCI, c.host.Name, twin, list,
		)
	}
}

// passedFunctions returns the functions that a machine with a device has: of an NVIDIA GPU always all.
func (c *checker) passedFunctions(device spec.Device) []Device {
	pci := device.PCI
	if device.Kind == spec.NVIDIAGPU {
		pci, _, _ = strings.Cut(pci, ".")
	}

	return c.facts.Functions(pci)
}

// checkGeneration compares the configured generation of a GPU, which determines its driver, with the card's name.
// Requests of talosops do not have it: the preview has checked it.
func (c *checker) checkGeneration(gpu spec.Device, card Device) {
	actual := talos.GenerationOf(card.Name)
	if actual == "" || gpu.Generation == "" || actual == gpu.Generation {
		return
	}

	path, name := c.host.DevicePath(gpu)+".generation", card.Name[strings.Index(card.Name, "NVIDIA"):]

	for _, node := range c.needs.Nodes {
		driver := talos.Driver{Flavour: node.Template.Driver.Flavour, Track: node.Template.Driver.Track}
		if slices.ContainsFunc(node.GPUs, func(g spec.Device) bool { return g.PCI == gpu.PCI }) &&
			!slices.Contains(talos.Drivers(node.Template.Version, actual), driver) {
			c.Found.Add(path, gpu.Generation, "is not that of %s on %s, %s, which the driver of %s (%s) does not drive; set %s",
				gpu.PCI, c.host.Name, name, node.Name, driver, actual)

			return
		}
	}

	c.Found.Warn(path, gpu.Generation, "is not that of %s on %s, %s; set %s", gpu.PCI, c.host.Name, name, actual)
}

// sharedDevices returns the devices that share an IOMMU group with a device and prevent its passthrough: all but its
// own functions, bridges, and other devices of the same machine.
func (c *checker) sharedDevices(device spec.Device) []Device {
	passed := c.passedFunctions(device)
	together := slices.Clone(passed)

	for _, node := range c.needs.Nodes {
		devices := node.AllDevices()
		if slices.ContainsFunc(devices, func(d spec.Device) bool { return d.PCI == device.PCI }) {
			for _, d := range devices {
				together = append(together, c.passedFunctions(d)...)
			}
		}
	}

	var shared []Device

	for _, d := range c.facts.Devices {
		sameGroup := d.Group != "" && slices.ContainsFunc(passed, func(own Device) bool { return own.Group == d.Group })
		if sameGroup && !slices.Contains(together, d) && !strings.HasPrefix(d.Class, classBridge) {
			shared = append(shared, d)
		}
	}

	return shared
}

// unlistedTwin returns a device of the same kind that is not among the host's devices: vfio-pci binds by ids, so it is
// bound as well.
func (c *checker) unlistedTwin(gpu Device) string {
	for _, d := range c.facts.Devices {
		listed := slices.ContainsFunc(
			c.host.AllDevices(), func(g spec.Device) bool { return slices.Contains(c.facts.Functions(g.PCI), d) },
		)
		if d.Vendor == gpu.Vendor && d.Device == gpu.Device && !listed {
			return d.Address
		}
	}

	return ""
}

func (c *checker) nvidiaHint() string {
	var found []string

	for _, d := range c.facts.Devices {
		if isDisplay(d, vendorNVIDIA) {
			found = append(found, d.label())
		}
	}

	if len(found) == 0 {
		return "it has no NVIDIA GPU; `lspci -nn` lists its devices: is the card seated and powered?"
	}

	return "its NVIDIA GPUs are " + strings.Join(found, ", ") + "; set where it is now"
}
