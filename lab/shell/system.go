package shell

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
)

// exactArgs is a command that accepts only these arguments.
func (s *Server) exactArgs(arguments string, answer func(c call, h datacentre.Host) error) command {
	return func(_ context.Context, c call) error {
		if strings.Join(c.words[1:], " ") != arguments {
			return usageError{fmt.Sprintf("ERROR: the lab's %s does not support these arguments\nUSAGE: %[1]s %s", c.words[0], arguments)}
		}

		return answer(c, s.currentHost())
	}
}

func (s *Server) hostname(c call, h datacentre.Host) error {
	c.printf("%s\n", h.Name)

	return nil
}

func (s *Server) uname(c call, h datacentre.Host) error {
	c.printf("%s\n", h.Boot.Kernel)

	return nil
}

func (s *Server) pveVersion(c call, h datacentre.Host) error {
	c.printf("pve-manager/%s/%s (running kernel: %s)\n", hostos.Version, hostos.RepoID, h.Boot.Kernel)

	return nil
}

// reboot starts a reboot of the host and returns at once.
func (s *Server) reboot(_ call, h datacentre.Host) error { return s.dc.RebootHost(h.Name) }

// pctList lists no containers.
func (s *Server) pctList(call, datacentre.Host) error { return nil }

// pciClasses are class names of the PCI ID database.
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

// lspci prints the devices with ids, names and drivers.
func (s *Server) lspci(c call, h datacentre.Host) error {
	for _, p := range h.PCI {
		class := p.Class[2:6]
		c.printf("%s %s [%s]: %s %s [%s] (rev a1)\n", p.Address, pciClasses[class], class, p.Vendor, p.Device, p.IDs())

		if driver := h.Boot.Drivers[p.Address]; driver != "" {
			c.printf("\tKernel driver in use: %s\n", driver)
		}
	}

	return nil
}
