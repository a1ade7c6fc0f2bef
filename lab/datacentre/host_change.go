package datacentre

import (
	"errors"
	"fmt"
	"slices"
)

// hardwareChange holds nil where nothing was changed.
type hardwareChange struct {
	PCI      []PCIDevice `json:"pci,omitempty"`
	Firmware *Firmware   `json:"firmware,omitempty"`
}

func (c hardwareChange) of(o HostOptions) HostOptions {
	o.PCI = slices.Clone(o.PCI)

	if c.PCI != nil {
		o.PCI = slices.Clone(c.PCI)
	}

	if c.Firmware != nil {
		o.Firmware = *c.Firmware
	}

	return o
}

// HostChange is a change of a host's hardware.
type HostChange struct {
	// MovePCI moves a device from one slot to another, both such as "0000:01:00".
	MovePCI [2]string `json:"movePci,omitzero"`
	// GroupWith puts all functions of the first slot into the IOMMU group of the device with the second address.
	GroupWith [2]string `json:"groupWith,omitzero"`
	// RemovePCI takes all functions of a slot out of the host.
	RemovePCI string `json:"removePci,omitempty"`
	// IOMMU switches the IOMMU on or off in the firmware.
	IOMMU *bool `json:"iommu,omitempty"`
}

// ChangeHost changes a host's hardware: from its next boot on, as hardware is changed while a host is off.
func (d *Datacentre) ChangeHost(name string, c HostChange) error {
	if err := d.needHost(name); err != nil {
		return err
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	s := d.hostState(name)
	next := s.Hardware

	if s.Pending != nil {
		next = *s.Pending
	}

	list := next.of(*d.host(name)).PCI

	var err error

	if c.MovePCI[0] != "" {
		if list, err = moveSlot(list, c.MovePCI[0], c.MovePCI[1]); err != nil {
			return fmt.Errorf("host %s: %w", name, err)
		}
	}

	if c.GroupWith[0] != "" {
		if err = joinGroup(list, c.GroupWith[0], c.GroupWith[1]); err != nil {
			return fmt.Errorf("host %s: %w", name, err)
		}
	}

	if slot := c.RemovePCI; slot != "" {
		gone := HostOptions{PCI: list}.pciDevices(slot)
		if len(gone) == 0 {
			return fmt.Errorf("host %s: slot %s is empty", name, slot)
		}

		list = slices.DeleteFunc(list, func(p PCIDevice) bool { return slices.Contains(gone, p) })
	}

	if next.PCI = list; c.IOMMU != nil {
		firmware := next.of(*d.host(name)).Firmware
		firmware.IOMMUOff = !*c.IOMMU
		next.Firmware = &firmware
	}

	s.Pending = &next

	return nil
}

func joinGroup(list []PCIDevice, slot, with string) error {
	host := HostOptions{PCI: list}
	members, target := host.pciDevices(slot), host.pciDevices(with)

	if len(members) == 0 || len(target) == 0 {
		return errors.New("no such devices: name a slot such as 0000:01:00 and a device such as 0000:02:00.0")
	}

	for i := range list {
		if slices.Contains(members, list[i]) {
			list[i].IOMMUGroup = target[0].IOMMUGroup
		}
	}

	return nil
}
