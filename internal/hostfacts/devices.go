package hostfacts

import (
	"cmp"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

func (c *checker) checkDevices() {
	for _, device := range spec.USBDevices(c.host.Devices) {
		c.checkUSB(device)
	}

	devices := spec.PCIDevices(c.host.AllDevices())
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
