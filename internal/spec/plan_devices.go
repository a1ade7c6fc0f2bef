package spec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// deviceNameFormat is Proxmox' format of a mapping's name.
var deviceNameFormat = format{
	regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{1,62}$`),
	"cannot be the name of a mapping in Proxmox; use letters, digits, _ and -, from 2 to 63, with a letter first",
}

// deviceKind are the common properties of all devices of a name, with the path of the first.
type deviceKind struct {
	Device
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

// planDevices checks the GPUs and other devices of a host and sets the valid ones, sorted by address, and their paths.
func (p *planner) planDevices(h *Host, c HostConfig) {
	h.devicePaths = map[string]string{}

	for i, g := range c.GPUs {
		gpu := Device{Name: g.Name, Host: c.Name, Generation: g.Generation, Raw: g.Passthrough == "raw"}
		at := fmt.Sprintf("%s.gpus[%d]", h.Path, i)

		if gpu.Raw {
			p.checkRoot(at+".passthrough", g.Passthrough, "set passthrough: mapping")
		}

		p.planPCI(at, g.PCI, &gpu)
		p.planDevice(h, &h.GPUs, at, g.PCI, gpu)
	}

	for i, d := range c.Devices {
		at := fmt.Sprintf("%s.devices[%d]", h.Path, i)
		if !labelNameFormat.pattern.MatchString(deviceLabels+d.Name) && d.Name != "" {
			p.problems.Add(at+".name", d.Name, "cannot be part of a node's label; write it with a letter or digit at its end")
		}

		device := Device{Name: d.Name, Host: c.Name, Kind: d.Kind}
		if p.hasOneAddress(at, d) {
			if d.USB != nil {
				p.planUSB(at, d, &device)
			} else {
				p.planPCI(at, d.PCI, &device)
			}
		}

		p.planDevice(h, &h.Devices, at, cmp.Or(d.PCI, device.Address()), device)
	}

	for _, list := range [][]Device{h.GPUs, h.Devices} {
		slices.SortFunc(list, func(a, b Device) int {
			return cmp.Or(strings.Compare(a.PCI, b.PCI), strings.Compare(a.Address(), b.Address()))
		})
	}
}

// planDevice checks a device of a host, whose address the configuration writes so, and adds a valid one to the list.
func (p *planner) planDevice(h *Host, list *[]Device, path, address string, device Device) {
	named := p.checkFormat(path+".name", device.Name, deviceNameFormat)
	if named {
		p.checkDeviceKind(path, device)
	}

	if !named || device.Address() == "" {
		return
	}

	key, remedy := ".pci", "remove one of the two"
	if device.Kind == USBDevice {
		key, remedy = ".usb", "remove one of the two, or set the port of each"
	}

	all := h.AllDevices()
	if j := slices.IndexFunc(all, device.shares); j >= 0 {
		p.problems.Add(
			path+key, address, "is the device of %s too (%s); %s", h.DevicePath(all[j]), all[j].Address(), remedy,
		)

		return
	}

	// Proxmox does not choose among USB devices of a host, as it does among PCI devices.
	sameName := func(o Device) bool { return o.Kind == USBDevice && device.Kind == USBDevice && o.Name == device.Name }
	if j := slices.IndexFunc(all, sameName); j >= 0 {
		p.problems.Add(
			path+".name", device.Name, "is the name of %s too, and a USB mapping of Proxmox has one device of a host; give this one "+
				"its own name", h.DevicePath(all[j]),
		)

		return
	}

	h.devicePaths[device.Address()] = path
	*list = append(*list, device)
}

// checkRoot checks whether the stack may use what Proxmox reserves for root@pam.
func (p *planner) checkRoot(path string, value any, otherwise string) {
	if p.options.CheckRoot == nil {
		return
	}

	if err := p.options.CheckRoot(); err != nil {
		p.problems.Add(path, value, "cannot be used: %s; %s, or log in so", err, otherwise)
	}
}

// checkDeviceKind reports a device that differs from others of its name: they must be alike, since Proxmox chooses
// among them.
func (p *planner) checkDeviceKind(path string, device Device) {
	first, known := p.kinds[device.Name]
	if !known {
		p.kinds[device.Name] = deviceKind{device, path}

		return
	}

	if device.Kind != first.Kind {
		p.problems.Add(
			path+".name", device.Name, "is the name of a device of another kind, %s; give each kind its own name", first.path,
		)

		return
	}

	if device.Generation != first.Generation && device.Generation != "" && first.Generation != "" {
		p.problems.Add(
			path+".generation", device.Generation,
			"differs from %s, which is %s and has the same name; give each kind of GPU its own name", first.path,
			first.Generation,
		)
	}

	if device.Raw != first.Raw {
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
			p.addMissing(
				g.path+".gpu",
				"is missing although GPU settings are set; set it, such as gpu: rtx4000, or remove gpusPerNode, timeSlicing and driver",
			)
		}

		return
	}

	kind, known := p.kinds[g.gpu]
	if !known || kind.Kind != NVIDIAGPU {
		p.reportUnknownDevice(g.path+".gpu", g.gpu, NVIDIAGPU)

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

// checkDevices checks the names of a pool's or a machine's devices, and returns the valid ones.
func (p *planner) checkDevices(path string, names, before []string) []string {
	var valid []string

	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)

		switch kind, known := p.kinds[name]; {
		case !known || kind.Kind == NVIDIAGPU:
			p.reportUnknownDevice(at, name, OtherDevice)
		case slices.Contains(before, name) || slices.Contains(valid, name):
			p.problems.Add(at, name, "is listed twice, and each machine gets one; remove one of the two")
		default:
			valid = append(valid, name)
		}
	}

	return valid
}

// reportUnknownDevice reports a name that no device of the wanted kind has: an NVIDIA GPU, or any other device.
func (p *planner) reportUnknownDevice(path, name string, wanted DeviceKind) {
	if p.problems.Has(path) {
		return
	}

	if _, known := p.kinds[name]; known && wanted == NVIDIAGPU {
		p.problems.Add(path, name, "is not a GPU of NVIDIA but one of hosts[].devices; use devices: [%s] of a pool of workers", name)

		return
	} else if known {
		p.problems.Add(path, name, "is a GPU of hosts[].gpus; use gpu, of gpuWorkers or controlPlane")

		return
	}

	var names []string

	for other, kind := range p.kinds {
		if kind.Kind.list() == wanted.list() {
			names = append(names, other)
		}
	}

	p.problems.Add(
		path, name, "is not a %s of any host%s; %s", wanted.noun(), p.describeDevices(wanted),
		suggestName(name, names, "hosts[]."+wanted.list()),
	)
}

// describeDevices returns the GPUs or the other devices of all hosts for messages: (hosts: pve1 has "a2000").
func (p *planner) describeDevices(wanted DeviceKind) string {
	var all []string

	for _, host := range p.hostNames {
		var names []string

		for _, device := range p.hosts[host].AllDevices() {
			if device.Kind.list() == wanted.list() {
				names = append(names, problem.EncodeValue(device.Name))
			}
		}

		if len(names) > 0 {
			slices.Sort(names)
			all = append(all, host+" has "+strings.Join(slices.Compact(names), ", "))
		}
	}

	if len(all) == 0 {
		return " (no host lists " + wanted.list() + ")"
	}

	return " (hosts: " + strings.Join(all, "; ") + ")"
}
