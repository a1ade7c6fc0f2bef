package spec

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// deviceLabels is the prefix of the labels that say which devices a node has.
const deviceLabels = "devices.talos-proxmox/"

// demand is a number of devices of a name that each machine needs.
type demand struct {
	name  string
	count int
	path  string // of the key that requests them
}

// setDemands sets which devices each machine of the pool needs.
func (p *planner) setDemands(g *pool) {
	if g.gpu != "" {
		g.demands = append(g.demands, demand{g.gpu, g.gpuUse.GPUsPerNode, g.path + ".gpu"})
	}

	for _, name := range p.checkDevices(g.path+".devices", g.Devices, nil) {
		g.demands = append(g.demands, demand{name, 1, g.path + ".devices"})
	}
}

// deviceNames returns the names of the devices that each machine of the pool gets, without NVIDIA's GPUs.
func (g *pool) deviceNames() (names []string) {
	for _, d := range g.demands {
		if d.path != g.path+".gpu" {
			names = append(names, d.name)
		}
	}

	return names
}

// requestDevices adds the devices of the names to a machine, which assignDevices chooses once all machines have hosts.
func (p *planner) requestDevices(g *pool, n *Node, names []string) {
	for _, name := range names {
		n.Devices = append(n.Devices, Device{Name: name, Kind: p.kinds[name].Kind})

		if g.inCluster() {
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}

			n.Labels[deviceLabels+name] = "true"
		}
	}

	const (
		mostPCI = 16 // hostpci0 to hostpci15
		mostUSB = 4  // usb0 to usb3: the provider reads no more, Proxmox has fourteen
	)

	for _, limit := range []struct {
		kind        string
		count, most int
	}{{"PCI", len(PCIDevices(n.AllDevices())), mostPCI}, {"USB", len(USBDevices(n.Devices)), mostUSB}} {
		if limit.count > limit.most && !p.problems.Has(g.path) {
			p.problems.Add(g.path+".devices", nil, "give a machine %d %s devices, and at most %d are possible; remove some",
				limit.count, limit.kind, limit.most)
		}
	}
}

// devicesOn returns the devices of a name on a host, sorted by address.
func (p *planner) devicesOn(host, name string) []Device {
	return slices.DeleteFunc(p.hosts[host].AllDevices(), func(d Device) bool { return d.Name != name })
}

// capacity returns how many machines of a pool a host has devices for, without regard to other pools.
func (p *planner) capacity(g *pool, host string) int {
	most := g.count

	for _, d := range g.demands {
		most = min(most, len(p.devicesOn(host, d.name))/max(d.count, 1))
	}

	return most
}

// short returns the first of the pool's known devices of which the host has less than a number of machines need.
func (p *planner) short(g *pool, host string, machines int) (demand, bool) {
	for _, d := range g.demands {
		if _, known := p.kinds[d.name]; known && len(p.devicesOn(host, d.name)) < d.count*machines {
			return d, true
		}
	}

	return demand{}, false
}

// hostsWithDevices returns the pool's hosts that have its devices, and reports listed hosts that do not.
func (p *planner) hostsWithDevices(g *pool, hosts []string) []string {
	hostsWith := make([]string, 0, len(hosts))
	for _, host := range hosts {
		missing, short := p.short(g, host, 1)
		if !short && !slices.ContainsFunc(g.demands, func(d demand) bool { return len(p.devicesOn(host, d.name)) == 0 }) {
			hostsWith = append(hostsWith, host)

			continue
		}

		i, kind := slices.Index(g.Hosts, host), p.kinds[missing.name].Kind
		if i < 0 || !short || p.problems.Has(p.hosts[host].Path+"."+kind.list()) {
			continue
		}

		p.problems.Add(
			fmt.Sprintf("%s.hosts[%d]", g.path, i), host, "has %s; remove it, or add the %s to %s.%s",
			p.describeShortage(missing, host), kind.noun(), p.hosts[host].Path, kind.list(),
		)
	}

	return hostsWith
}

// describeShortage describes what a host lacks: no GPU "rtx4000", or 1 of the GPU "rtx4000", and each machine needs 2.
func (p *planner) describeShortage(d demand, host string) string {
	have, noun := len(p.devicesOn(host, d.name)), p.kinds[d.name].Kind.noun()
	if have == 0 {
		return fmt.Sprintf("no %s %q", noun, d.name)
	}

	return fmt.Sprintf("%d of the %s %q, and each machine needs %d", have, noun, d.name, d.count)
}

// checkPinnedDevices reports pinned machines of a pool whose host has too few devices.
func (p *planner) checkPinnedDevices(g *pool, overrides map[int]nodeOverrides) {
	pinned := map[string]int{}

	for i := range g.nodes {
		host := overrides[i].Host

		h, known := p.hosts[host]
		if !known {
			continue
		}

		pinned[host]++

		missing, short := p.short(g, host, pinned[host])

		kind := p.kinds[missing.name].Kind
		if !short || p.problems.Has(h.Path+"."+kind.list()) {
			continue
		}

		have := len(p.devicesOn(host, missing.name))

		why := "has " + p.describeShortage(missing, host)
		if have >= missing.count {
			why = fmt.Sprintf(
				"has %d of the %s %q, and other machines of the pool are pinned to it", have, kind.noun(), missing.name,
			)
		}

		p.problems.Add(
			overrides[i].path+".host", host, "%s; choose a host that has one free, or add the %s to %s.%s", why, kind.noun(),
			h.Path, kind.list(),
		)
	}
}

// checkOwnDevices returns the valid devices of a machine in addition to its pool's. Such a machine needs a host, so
// that no other machine or device moves it.
func (p *planner) checkOwnDevices(g *pool, overrides nodeOverrides) []string {
	at := overrides.path + ".devices"

	names := p.checkDevices(at, overrides.Devices, g.Devices)
	if len(overrides.Devices) > 0 && overrides.Host == "" {
		p.problems.Add(at, nil, "are set without host; set the host of the machine, which has them")

		return nil
	}

	for _, name := range names {
		h, known := p.hosts[overrides.Host]
		if known && len(p.devicesOn(overrides.Host, name)) == 0 && !p.problems.Has(h.Path+".devices") {
			p.problems.Add(at, name, "is not a device of %s; choose a host that has it, or add it to %s.devices", h.Name, h.Path)
		}
	}

	return names
}

// reportUnplaced reports machines for which the pool's hosts have no devices left.
func (p *planner) reportUnplaced(g *pool, unplaced int) {
	if unplaced == 0 || p.problems.Has("hosts") || p.problems.Has(g.path+".hosts") || p.problems.Has(g.path+".nodes") {
		return
	}

	for _, d := range g.demands {
		kind, known := p.kinds[d.name]
		if !known || p.problems.Has(d.path) {
			return
		}

		var have []string

		largest, room := 0, 0

		for _, host := range p.poolHosts(g) {
			if n := len(p.devicesOn(host, d.name)); n > 0 {
				have = append(have, fmt.Sprintf("%s %d", host, n))
				largest = max(largest, n)
				room += n / max(d.count, 1)
			}
		}

		if d.count > largest && d.count > 1 {
			p.problems.Add(
				g.path+".gpusPerNode", d.count, "is more than one host has of the GPU %q (%s); use at most %d", d.name,
				strings.Join(have, ", "), largest,
			)

			return
		}

		if room >= g.count && len(g.demands) > 1 {
			continue // another one is short
		}

		remedy := fmt.Sprintf("use at most %d", g.count-unplaced)
		if g.role == RoleControlPlane {
			remedy = "use fewer control planes"
		}

		p.problems.Add(
			g.path+".count", g.count, "is more machines than there are %ss %q for (%s); %s, or add %[1]ss to hosts[].%[5]s",
			kind.Kind.noun(), d.name, strings.Join(have, ", "), remedy, kind.Kind.list(),
		)

		return
	}

	p.problems.Add(
		g.path+".count", g.count,
		"is more machines than hosts have all of their devices for (%s); use fewer, or add devices to hosts[].devices",
		strings.Join(g.deviceNames(), ", "),
	)
}

// checkControlPlaneHosts requires hosts for control planes with devices, so that a device added to another host cannot
// move, and thereby replace, a control plane.
func (p *planner) checkControlPlaneHosts(g *pool, hosts []string, overrides map[int]nodeOverrides) {
	if g.role != RoleControlPlane || len(g.Hosts) > 0 || len(hosts) < 2 {
		return
	}

	for i := range g.nodes {
		if overrides[i].Host == "" {
			first := g.demands[0]
			noun := p.kinds[first.name].Kind.noun()
			p.problems.Add(g.path+".hosts", nil,
				"is missing, and %s have the %s %q; set those of this pool, so that another %[2]s never replaces a control plane",
				strings.Join(hosts, " and "), noun, first.name)

			return
		}
	}
}

// kindExtensions returns the extensions that the devices of a machine need, and the suffix of its template's class;
// none if its class has them already.
func kindExtensions(version string, devices []Device) (extensions []string, suffix string) {
	for _, kind := range []DeviceKind{AMDGPU, IntelGPU} {
		if slices.ContainsFunc(devices, func(d Device) bool { return d.Kind == kind }) {
			extensions = append(extensions, talos.GPUExtensions(version, string(kind))...)
			suffix += "-" + string(kind)
		}
	}

	return extensions, suffix
}
