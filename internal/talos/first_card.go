package talos

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// firstLinks are the names that Linux gives the first network card of a VM on Proxmox: of the machine types i440fx and
// q35, and with net.ifnames=0.
var firstLinks = []string{"ens18", "enp6s18", "eth0"}

// checkFirstCard returns why a patch conflicts with what the program configures of the first network card, or nil: the
// card is in a bond or bridge, which then has its addresses twice, or the VIP is on another link as well.
func checkFirstCard(c ClusterConfig, n NodeConfig, patch string) error {
	loaded, err := configpatcher.LoadPatch([]byte(patch))
	merge, ok := loaded.(configpatcher.StrategicMergePatch)

	if err != nil || !ok || len(n.Interfaces) == 0 {
		return nil // the validation of the configuration reports it
	}

	var problems []error

	for _, document := range merge.Documents() {
		switch document := document.(type) {
		case *v1alpha1.Config:
			if document.MachineConfig == nil {
				continue
			}

			for _, device := range document.MachineConfig.Network().Devices() {
				problems = append(problems, checkDevice(c, n, device))
			}
		case config.NetworkBondConfig:
			problems = append(problems, checkMembers(n, document.Name(), document.Links(), nil))
		case config.NetworkBridgeConfig:
			problems = append(problems, checkMembers(n, document.Name(), document.Links(), nil))
		case config.NetworkVirtualIPConfig:
			if c.VIP.IsValid() && document.VIP() == c.VIP && !slices.Contains(firstLinks, document.Link()) {
				problems = append(problems, secondVIP(c))
			}
		}
	}

	return errors.Join(problems...)
}

func checkDevice(c ClusterConfig, n NodeConfig, device config.Device) error {
	name := device.Interface()
	isFirst := slices.Contains(firstLinks, name) || device.Selector() != nil && selectsFirst(n, device.Selector())

	var problems []error

	if vip := device.VIPConfig(); vip != nil && c.VIP.IsValid() && vip.IP() == c.VIP.String() && !isFirst {
		problems = append(problems, secondVIP(c))
	}

	for _, vlan := range device.Vlans() {
		if vip := vlan.VIPConfig(); vip != nil && c.VIP.IsValid() && vip.IP() == c.VIP.String() {
			problems = append(problems, secondVIP(c))
		}
	}

	if bond := device.Bond(); bond != nil {
		problems = append(problems, checkMembers(n, name, bond.Interfaces(), bond.Selectors()))
	}

	if bridge := device.Bridge(); bridge != nil {
		problems = append(problems, checkMembers(n, name, bridge.Interfaces(), nil))
	}

	return errors.Join(problems...)
}

// checkMembers reports a bond or bridge that the first card is a member of.
func checkMembers(n NodeConfig, name string, links []string, selectors []config.NetworkDeviceSelector) error {
	if !slices.ContainsFunc(links, func(link string) bool { return slices.Contains(firstLinks, link) }) &&
		!slices.ContainsFunc(selectors, func(s config.NetworkDeviceSelector) bool { return selectsFirst(n, s) }) {
		return nil
	}

	return fmt.Errorf("it makes the first network card of the machine, whose addresses the program sets on the card itself, "+
		"a member of %s: use cards of extraNICs with dhcp: false for that", cmp.Or(name, "a bond or bridge"))
}

func secondVIP(c ClusterConfig) error {
	return fmt.Errorf("it sets the VIP %s on another link, and network.vip sets it on the first network card: remove one of "+
		"the two", c.VIP)
}

// selectsFirst reports whether a selector matches the first card. Where the card is on the PCI bus is not known.
func selectsFirst(n NodeConfig, s config.NetworkDeviceSelector) bool {
	mac := strings.ToLower(n.Interfaces[0].MAC)
	stated := false

	for _, part := range []struct{ pattern, value string }{
		{s.HardwareAddress(), mac}, {s.PermanentAddress(), mac}, {s.KernelDriver(), "virtio_net"}, {s.PCIID(), "1af4:1000"},
	} {
		if part.pattern == "" {
			continue
		}

		stated = true

		if matched, err := path.Match(strings.ToLower(part.pattern), part.value); err != nil || !matched {
			return false
		}
	}

	return s.Bus() == "" && (stated || s.Physical() != nil && *s.Physical())
}
