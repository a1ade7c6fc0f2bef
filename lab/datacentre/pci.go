package datacentre

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// pciAlternatives resolves a hostpci value to sets of devices; a start takes the first free set. Errors are those of a
// start.
func (d *Datacentre) pciAlternatives(h Host, value string) ([][]PCIDevice, error) {
	p := ParseProperties("hostpci0", value)
	paths := []string{p["host"]}

	if name := p["mapping"]; name != "" {
		m := d.state.Records[PCIMappings][name]

		entries := mappingEntries(m, h.Name)
		if len(entries) == 0 {
			return nil, fmt.Errorf("PCI device mapping not found for '%s'", name)
		}

		paths = nil

		for _, entry := range entries {
			if err := checkMappingEntry(name, m.Bool("mdev"), h, entry); err != nil {
				return nil, fmt.Errorf("PCI device mapping invalid (hardware probably changed): %w", err)
			}

			paths = append(paths, entry["path"])
		}
	}

	var list [][]PCIDevice

	for _, path := range paths {
		var devices []PCIDevice

		for id := range strings.SplitSeq(path, ";") {
			found := h.pciDevices(id)
			if len(found) == 0 {
				return nil, fmt.Errorf("no PCI device found for '%s'", id)
			}

			devices = append(devices, found...)
		}

		list = append(list, devices)
	}

	return list, nil
}

// mappingEntries returns a mapping's entries for a host.
func mappingEntries(mapping Config, host string) []Config {
	var list []Config

	for _, text := range mapping.Values("map") {
		if entry := ParseProperties("", text); entry["node"] == host {
			list = append(list, entry)
		}
	}

	return list
}

// checkMappingEntry compares an entry of a mapping with the host's devices, property by property in Proxmox' order.
func checkMappingEntry(name string, mdev bool, h Host, entry Config) error {
	for i, path := range strings.Split(entry["path"], ";") {
		if !strings.Contains(path, ".") {
			path += ".0" // a whole device: its first function must match
		}

		found := h.pciDevices(path)
		if len(found) == 0 {
			return fmt.Errorf("pci device '%s' not found", path)
		}

		group := ""
		if found[0].IOMMUGroup >= 0 {
			group = fmt.Sprint(found[0].IOMMUGroup)
		}

		// No device of the lab offers mediated devices.
		for _, property := range []struct{ name, actual, expected string }{
			{"id", found[0].IDs(), entry["id"]},
			{"iommugroup", group, entry["iommugroup"]},
			{"mdev", "0", map[bool]string{false: "0", true: "1"}[mdev]},
			{"subsystem-id", found[0].SubsystemIDs(), entry["subsystem-id"]},
		} {
			actual, expected := property.actual, strings.ReplaceAll(property.expected, "0x", "")

			switch {
			case property.name == "iommugroup" && i > 0 || actual == expected:
			case expected == "":
				return fmt.Errorf("missing expected property '%s' for device '%s'", property.name, path)
			case actual == "":
				return fmt.Errorf("unexpected property '%s' configured for device '%s'", property.name, path)
			default:
				return fmt.Errorf("'%s' does not match for '%s' (%s != %s)", property.name, name, actual, expected)
			}
		}
	}

	return nil
}

// choosePCI selects the devices for a VM's start and logs KVM's messages to the worker.
func (d *Datacentre) choosePCI(w *worker, v *vm) ([]PCIDevice, error) {
	h := d.hostView(d.host(v.Host))

	var chosen []PCIDevice

	for _, key := range v.Config.numbered("hostpci") {
		if v.Config.Properties(key).Bool("pcie") && !strings.Contains(v.Config["machine"], "q35") {
			return nil, errors.New("q35 machine model is not enabled")
		}

		sets, err := d.pciAlternatives(h, v.Config[key])
		if err != nil {
			return nil, err
		}

		set, err := d.pickSet(v, key, sets, chosen)
		if err != nil {
			return nil, err
		}

		chosen = append(chosen, set...)
	}

	for _, p := range chosen {
		if other := d.pciUser(v, p.Address); other != 0 {
			return nil, fmt.Errorf("PCI device '%s' already in use by VMID '%d'", p.Address, other)
		}
	}

	for _, p := range chosen {
		if !h.Boot.IOMMU || p.IOMMUGroup < 0 {
			return nil, errors.New("cannot prepare PCI pass-through, IOMMU not present")
		}

		if problem := d.groupProblem(v, h, p, chosen); problem != "" {
			w.log("%s", problem)

			return nil, errors.New("start failed: QEMU exited with code 1")
		}
	}

	return chosen, nil
}

// pickSet returns the first free set. A single set is returned without this check: choosePCI reports it with another
// error.
func (d *Datacentre) pickSet(v *vm, key string, sets [][]PCIDevice, chosen []PCIDevice) ([]PCIDevice, error) {
	for _, set := range sets {
		duplicate := slices.IndexFunc(set, func(p PCIDevice) bool { return slices.Contains(chosen, p) })
		if len(sets) == 1 && duplicate >= 0 {
			return nil, fmt.Errorf("device '%s' assigned more than once", set[duplicate].Address)
		}

		free := !slices.ContainsFunc(set, func(p PCIDevice) bool { return d.pciUser(v, p.Address) != 0 })
		if len(sets) == 1 || duplicate < 0 && free {
			return set, nil
		}
	}

	return nil, fmt.Errorf("could not find a free device for '%s'", key)
}

// groupProblem returns why VFIO refuses a device because of its group: another device of it belongs to another VM, or
// to the host. Proxmox binds a whole group except bridges to vfio-pci; the lab's host keeps its boot disk (a real host
// would hang).
func (d *Datacentre) groupProblem(v *vm, h Host, p PCIDevice, chosen []PCIDevice) string {
	for _, other := range h.PCI {
		if other.IOMMUGroup != p.IOMMUGroup || other.Bridge() || slices.Contains(chosen, other) {
			continue
		}

		if d.pciUser(v, other.Address) != 0 {
			return fmt.Sprintf(
				"kvm: -device vfio-pci,host=%s: vfio %[1]s: failed to open /dev/vfio/%d: Device or resource busy", p.Address,
				p.IOMMUGroup,
			)
		}

		if other.BootDisk {
			return fmt.Sprintf("kvm: -device vfio-pci,host=%s: vfio %[1]s: group %d is not viable\n"+
				"Please ensure all devices within the iommu_group are bound to their vfio bus driver.", p.Address, p.IOMMUGroup)
		}
	}

	return ""
}

// bindVFIO binds the groups of the devices to vfio-pci, where they stay after the VM stops; it requires the lock.
func (d *Datacentre) bindVFIO(hostName string, devices []PCIDevice) (changed bool) {
	s := d.hostState(hostName)
	if len(devices) == 0 || s.Boot == nil {
		return false
	}

	drivers := map[string]string{}

	for _, p := range d.hardwareOf(d.host(hostName)).PCI {
		drivers[p.Address] = s.Boot.Drivers[p.Address]

		inGroup := slices.ContainsFunc(devices, func(c PCIDevice) bool { return c.IOMMUGroup == p.IOMMUGroup })
		if inGroup && !p.Bridge() && drivers[p.Address] != "vfio-pci" {
			drivers[p.Address], changed = "vfio-pci", true
		}

		if drivers[p.Address] == "" {
			delete(drivers, p.Address)
		}
	}

	if changed && !slices.Contains(s.Boot.Modules, "vfio_pci") {
		s.Boot.Modules = slices.Sorted(slices.Values(append(slices.Clone(s.Boot.Modules), "vfio_pci")))
	}

	s.Boot.Drivers = drivers

	return changed
}

func (d *Datacentre) pciUser(v *vm, address string) int {
	for _, o := range d.sortedVMs() {
		if o.ID == v.ID || o.Host != v.Host || !o.Running || o.Hardware == nil {
			continue
		}

		if slices.ContainsFunc(o.Hardware.PCI, func(p PCIDevice) bool { return p.Address == address }) {
			return o.ID
		}
	}

	return 0
}
