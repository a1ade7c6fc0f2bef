package hostfacts

import (
	"fmt"
	"strconv"
	"strings"
)

// Identity is what Proxmox recognises a mapped device by: with all of it a mapping is complete, and a machine does not
// start when one of it has changed.
type Identity struct {
	ID        string // vendor and device: 10de:27b0
	Subsystem string // of the card's maker: 10de:16fa
	Group     int    // the IOMMU group
}

// Identity returns that of the device at a PCI address as a plan sets it; of a device as a whole it is its first
// function's.
func (f *Facts) Identity(pci string) (Identity, error) {
	functions := f.Functions(pci)
	if len(functions) == 0 {
		return Identity{}, fmt.Errorf("there is no PCI device at %s: set where it is now", pci)
	}

	first := functions[0]
	for _, d := range functions {
		if strings.Compare(d.Address, first.Address) < 0 {
			first = d
		}
	}

	group, err := strconv.Atoi(first.Group)
	if err != nil {
		return Identity{}, fmt.Errorf("the device at %s is in no IOMMU group: the host runs without its IOMMU, and a reboot after its preparation fixes that", pci)
	}

	return Identity{
		ID: first.Vendor + ":" + first.Device, Subsystem: first.SubsystemVendor + ":" + first.SubsystemDevice, Group: group,
	}, nil
}
