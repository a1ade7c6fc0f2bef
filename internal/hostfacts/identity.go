package hostfacts

import (
	"fmt"
	"strconv"
	"strings"
)

// Identity is how Proxmox recognizes a mapped device. A complete mapping has all of it, and a machine does not start if
// any of it has changed.
type Identity struct {
	ID        string // vendor and device: 10de:27b0
	Subsystem string // of the card's maker: 10de:16fa
	Group     int    // the IOMMU group
}

// Identity returns the identity of the device at a planned PCI address; a whole device has its first function's.
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
