package shell

import (
	"context"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

// pciClasses are names of the PCI ID database.
var pciClasses = map[string]string{
	"0106": "SATA controller",
	"0108": "Non-Volatile memory controller",
	"0200": "Ethernet controller",
	"0300": "VGA compatible controller",
	"0302": "3D controller",
	"0403": "Audio device",
	"0600": "Host bridge",
	"0601": "ISA bridge",
	"0604": "PCI bridge",
	"0806": "IOMMU",
	"0c03": "USB controller", "0c05": "SMBus",
}

// pciQuery is lspci's command line.
type pciQuery struct {
	domain, kernel, verbose bool
	// numeric counts -n: once numbers only, twice both.
	numeric    int
	slot, kind string
}

func parsePCIQuery(words []string) (pciQuery, error) {
	var q pciQuery

	for i := 0; i < len(words); i++ {
		if !strings.HasPrefix(words[i], "-") {
			return q, fmt.Errorf("unknown argument '%s'", words[i])
		}

		for j, flag := range words[i][1:] {
			switch flag {
			case 'D':
				q.domain = true
			case 'k':
				q.kernel = true
			case 'v':
				q.verbose, q.kernel = true, true
			case 'n':
				q.numeric++
			case 's', 'd':
				value := words[i][j+2:]
				if value == "" && i+1 < len(words) {
					i++
					value = words[i]
				}

				if flag == 's' {
					q.slot = value
				} else {
					q.kind = value
				}
			default:
				return q, fmt.Errorf("invalid option -- '%c'", flag)
			}

			if flag == 's' || flag == 'd' {
				break
			}
		}
	}

	return q, nil
}

// wants says whether a device is asked for: a slot with or without domain and function, and vendor:device with empty
// parts for any.
func (q pciQuery) wants(p datacentre.PCIDevice) bool {
	slot := q.slot
	if strings.Count(slot, ":") == 1 {
		slot = "0000:" + slot
	}

	if slot != "" && p.Address != slot && (strings.Contains(slot, ".") || !strings.HasPrefix(p.Address, slot+".")) {
		return false
	}

	vendor, device, _ := strings.Cut(strings.ToLower(q.kind), ":")
	ids := strings.SplitN(p.IDs(), ":", 2)

	return (vendor == "" || vendor == ids[0]) && (device == "" || device == ids[1])
}

func (s *Server) lspci(_ context.Context, c call) error {
	q, err := parsePCIQuery(c.words[1:])
	if err != nil {
		c.errorf("lspci: %s\nUsage: lspci [<switches>]\n", err)

		return interp.ExitStatus(statusFailed)
	}

	h := s.this()

	for _, p := range h.PCI {
		if !q.wants(p) {
			continue
		}

		c.printf("%s\n", q.line(p))

		if !q.kernel {
			continue
		}

		if p.SubsystemVendor != "" {
			c.printf("\tSubsystem: %s\n", q.subsystem(p))
		}

		if q.verbose && p.IOMMUGroup >= 0 {
			c.printf("\tFlags: fast devsel, IOMMU group %d\n", p.IOMMUGroup)
		}

		if driver := h.Boot.Drivers[p.Address]; driver != "" {
			c.printf("\tKernel driver in use: %s\n", driver)
		}

		if modules := modulesFor(p); modules != "" {
			c.printf("\tKernel modules: %s\n", modules)
		}
	}

	return nil
}

func (q pciQuery) line(p datacentre.PCIDevice) string {
	address, class := p.Address, p.Class[2:6]
	if !q.domain {
		address = strings.TrimPrefix(address, "0000:")
	}

	switch q.numeric {
	case 0:
		return fmt.Sprintf("%s %s: %s %s (rev a1)", address, pciClasses[class], p.Vendor, p.Device)
	case 1:
		return fmt.Sprintf("%s %s: %s (rev a1)", address, class, p.IDs())
	default:
		return fmt.Sprintf("%s %s [%s]: %s %s [%s] (rev a1)", address, pciClasses[class], class, p.Vendor, p.Device, p.IDs())
	}
}

func (q pciQuery) subsystem(p datacentre.PCIDevice) string {
	device := strings.TrimPrefix(p.SubsystemDevice, "0x")
	vendor := "Unknown vendor " + strings.TrimPrefix(p.SubsystemVendor, "0x")

	if p.SubsystemVendor == p.VendorID {
		vendor = p.Vendor
	}

	switch q.numeric {
	case 0:
		return vendor + " Device " + device
	case 1:
		return p.SubsystemIDs()
	default:
		return vendor + " Device [" + p.SubsystemIDs() + "]"
	}
}

// modulesFor are the modules that could serve a device; "pcieport" is built in.
func modulesFor(p datacentre.PCIDevice) string {
	switch {
	case p.VendorID == "0x10de" && strings.HasPrefix(p.Class, "0x03"):
		return "nvidiafb, nouveau"
	case p.Driver == "pcieport":
		return ""
	default:
		return p.Driver
	}
}
