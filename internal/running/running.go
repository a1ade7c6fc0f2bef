// Package running knows the machines that a stack's last run left, and judges a plan by them before anything is registered: what the stack file alone cannot
// show, because a plan follows from the stack file alone.
package running

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Machine is a VM of the stack as its last run left it.
type Machine struct {
	Name, Cluster, Host string
	VMID                int
	Address             string // without its prefix length; empty = by DHCP
	// Disks are the interfaces of its disks in the order of the stack file, the system disk first.
	Disks   []string
	Devices []Device
}

// Device is a PCI device that the machine has, by its mapping or by its address.
type Device struct{ Mapping, PCI string }

// Read takes from the outputs of a VM's resource what is judged; nothing else of them is kept.
func Read(outputs map[string]any) (Machine, error) {
	var vm struct {
		Name           string
		VMID           int
		NodeName       string
		Tags           []string
		Disks          []struct{ Interface string }
		HostPCIs       []struct{ Mapping, ID string }
		Initialization struct {
			IPConfigs []struct{ IPv4 struct{ Address string } }
		}
	}
	text, err := json.Marshal(outputs)
	if err == nil {
		err = json.Unmarshal(text, &vm)
	}
	if err != nil {
		return Machine{}, fmt.Errorf("unable to read a VM of the stack's state: %w", err)
	}

	m := Machine{Name: vm.Name, Host: vm.NodeName, VMID: vm.VMID}
	for _, tag := range vm.Tags {
		if cluster, found := strings.CutPrefix(tag, "cluster-"); found {
			m.Cluster = cluster
		}
	}
	for _, disk := range vm.Disks {
		m.Disks = append(m.Disks, disk.Interface)
	}
	for _, device := range vm.HostPCIs {
		m.Devices = append(m.Devices, Device{Mapping: device.Mapping, PCI: device.ID})
	}
	if configs := vm.Initialization.IPConfigs; len(configs) > 0 && configs[0].IPv4.Address != "dhcp" {
		m.Address, _, _ = strings.Cut(configs[0].IPv4.Address, "/")
	}

	return m, nil
}
