package datacentre

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// passthrough resolves a hostpci value to the devices of the host; the errors are those of a start.
func (d *Datacentre) passthrough(hostName, value string) ([]PCIDevice, error) {
	h := d.host(hostName)
	p := ParseProperties(value, "host")
	ids := strings.Split(p.Get("host"), ";")
	name := p.Get("mapping")

	if name != "" {
		m := d.state.Mappings[name]
		if m == nil {
			return nil, fmt.Errorf("PCI device mapping not found for '%s'", name)
		}

		i := slices.IndexFunc(m.Map, func(s string) bool { return ParseProperties(s, "").Get("node") == hostName })
		if i < 0 {
			return nil, fmt.Errorf("PCI device mapping not found for '%s'", name)
		}

		entry := ParseProperties(m.Map[i], "")
		ids = strings.Split(entry.Get("path"), ";")

		if err := h.checkMapping(entry, ids); err != nil {
			return nil, fmt.Errorf("PCI device mapping invalid (hardware probably changed): %w", err)
		}
	}

	var list []PCIDevice

	for _, id := range ids {
		found := h.pciDevices(id)
		if len(found) == 0 {
			return nil, fmt.Errorf("no PCI device found for '%s'", id)
		}

		if slices.ContainsFunc(found, func(p PCIDevice) bool { return p.IOMMUGroup < 0 }) {
			return nil, errors.New("cannot prepare PCI pass-through, IOMMU not present")
		}

		list = append(list, found...)
	}

	return list, nil
}

// checkMapping compares what a mapping says with the host's devices.
func (h *host) checkMapping(entry Properties, ids []string) error {
	for _, id := range ids {
		found := h.pciDevices(id)
		if len(found) == 0 {
			return fmt.Errorf("no PCI device found for '%s'", id)
		}

		dev := found[0]
		is := strings.TrimPrefix(dev.VendorID, "0x") + ":" + strings.TrimPrefix(dev.DeviceID, "0x")

		if want := entry.Get("id"); !strings.EqualFold(want, is) {
			return fmt.Errorf("'id' does not match for '%s' (%s != %s)", id, want, is)
		}

		if want := entry.Get("iommugroup"); want != "" && want != fmt.Sprint(dev.IOMMUGroup) {
			return fmt.Errorf("'iommugroup' does not match for '%s' (%s != %d)", id, want, dev.IOMMUGroup)
		}
	}

	return nil
}

// guestPCI is what a VM's passed-through devices look like from inside.
func (d *Datacentre) guestPCI(v *vm) []GuestPCI {
	var list []GuestPCI

	for _, k := range v.Config.numbered("hostpci") {
		devices, err := d.passthrough(v.Host, v.Config[k])
		if err != nil {
			continue
		}

		for _, p := range devices {
			list = append(list, GuestPCI{
				Address: p.Address, Vendor: p.Vendor, Device: p.Device, VendorID: p.VendorID, DeviceID: p.DeviceID, Class: p.Class,
			})
		}
	}

	return list
}

// claimPCI checks a VM's passed-through devices before it starts; called with the lock held.
func (d *Datacentre) claimPCI(v *vm) error {
	for _, k := range v.Config.numbered("hostpci") {
		devices, err := d.passthrough(v.Host, v.Config[k])
		if err != nil {
			return err
		}

		for _, p := range devices {
			if other := d.pciUser(v, p.Address); other != 0 {
				return fmt.Errorf("PCI device '%s' already in use by VMID '%d'", p.Address, other)
			}
		}
	}

	return nil
}

func (d *Datacentre) pciUser(v *vm, address string) int {
	for _, o := range d.sortedVMs() {
		if o.ID == v.ID || o.Host != v.Host || !o.Running || o.Hardware == nil {
			continue
		}

		if slices.ContainsFunc(o.Hardware.PCI, func(p GuestPCI) bool { return p.Address == address }) {
			return o.ID
		}
	}

	return 0
}
