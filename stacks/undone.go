package stacks

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/look"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/running"
	"talos-proxmox/internal/spec"
)

// wanted are the machines of a plan by VMID, without those that are skipped: these may be as they are.
func wanted(plan *spec.Plan) map[int]running.Machine {
	machines := map[int]running.Machine{}

	for _, cluster := range plan.Clusters {
		for _, n := range cluster.Nodes() {
			if !n.Skip {
				machines[n.VMID] = running.Wanted(n, cluster.Network)
			}
		}
	}

	for _, m := range plan.Machines {
		machines[m.VMID] = running.WantedMachine(m)
	}

	return machines
}

// undone finds what is planned for a VM and Proxmox does not have, once the run has done what it found to do: where a
// change of a VM failed, the state has what was asked for, and the next run finds nothing to do.
func undone(vm look.VM, planned running.Machine, found proxmoxapi.Machine) error {
	var differs []string
	if found.Stopped {
		differs = append(differs, "it is stopped")
	}

	for _, change := range running.Compare(asFound(planned, found), planned) {
		differs = append(differs, change.What)
	}

	if len(differs) == 0 {
		return nil
	}

	return fmt.Errorf("%s (VM %d on host %s) is not as planned: %s. A run that failed left it so, or someone changed it: `pulumi up --refresh` fixes it",
		vm.Name, vm.VMID, found.Host, strings.Join(differs, ", "))
}

// asFound is a machine as it is planned, with what its configuration on Proxmox says of sizes, disks, cards and
// devices. What Proxmox does not say is as planned, and a disk that is larger is no work that was left undone.
func asFound(planned running.Machine, found proxmoxapi.Machine) running.Machine {
	m := planned
	if cores := found.Number("cores"); cores > 0 {
		m.Cores = cores
	}

	if memory := found.Number("memory"); memory > 0 {
		m.MemoryMiB = memory
	}

	m.Disks = slices.DeleteFunc(slices.Clone(m.Disks), func(d running.Disk) bool {
		_, there := found.DiskGiB(d.Interface)

		return !there
	})
	for i, d := range m.Disks {
		size, _ := found.DiskGiB(d.Interface)
		m.Disks[i].SizeGiB = min(d.SizeGiB, size)
	}

	m.Cards = slices.Clone(m.Cards)
	for i := range m.Cards {
		device := fmt.Sprintf("net%d", i)

		bridge, there := found.Option(device, "bridge")
		if !there {
			m.Cards = m.Cards[:i]

			break
		}

		tag, _ := found.Option(device, "tag")
		m.Cards[i].Bridge, m.Cards[i].VLAN = bridge, 0
		_, _ = fmt.Sscan(tag, &m.Cards[i].VLAN)
	}

	m.Devices = nil
	for i, d := range planned.Devices {
		device := fmt.Sprintf("hostpci%d", i)
		if _, there := found.Option(device, ""); !there {
			continue
		}

		if d.Mapping != "" { // a device by its address is only there or not
			d.Mapping, _ = found.Option(device, "mapping")
		}

		m.Devices = append(m.Devices, d)
	}

	return m
}
