package stacks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/internal/vmlookup"
)

// plannedMachines returns the machines of a plan by VMID, without skipped ones, which may differ.
func plannedMachines(plan *spec.Plan) map[int]vmdiff.Machine {
	machines := map[int]vmdiff.Machine{}

	for _, m := range plan.Members() {
		if !m.Skip {
			planned := vmdiff.FromPlan(m)
			planned.HasCSI = false // a missing disk is unfinished work
			machines[m.VMID] = planned
		}
	}

	return machines
}

// finishUpdate restarts a machine whose configuration on Proxmox takes effect with its next start: the restart of an
// earlier update failed or was interrupted, which no refresh shows. It returns an error if the machine still differs
// from the plan after the updates of this run: if an earlier update failed, the state has what was planned, and the
// next run would find nothing to do. A preview has updated nothing: a restart is a warning, and a difference no error.
func (m *machineLookup) finishUpdate(
	ctx context.Context, vm vmlookup.VM, planned vmdiff.Machine, found proxmoxapi.Machine,
) (restarted bool, err error) {
	different := differences(planned, found)
	if len(different) == 0 || vm.Unreachable && found.Stopped && len(different) == 1 {
		return false, nil
	}

	name := fmt.Sprintf("%s (VM %d on host %s)", vm.Name, vm.VMID, found.Host)
	changes := strings.Join(different, ", ")

	restartApplies := false

	if !found.Stopped {
		config, err := m.proxmox.PendingConfig(ctx, found.Host, vm.VMID)
		restartApplies = err == nil && len(differences(planned, proxmoxapi.Machine{Config: config})) == 0
	}

	switch {
	case m.preview && restartApplies:
		return true, m.warn(name+" is restarted to finish an earlier update: "+changes, nil)
	case m.preview && found.Stopped:
		return false, m.warn(name+" is stopped: `pulumi up --refresh` starts it", nil)
	case m.preview:
		return false, nil
	case !restartApplies:
		return false, fmt.Errorf("%s is not as planned: %s. A run that failed left it so, or someone changed it: "+
			"`pulumi up --refresh` fixes it", name, changes)
	}

	restart := func() error {
		if err := m.proxmox.Restart(ctx, found.Host, vm.VMID); err != nil {
			return fmt.Errorf("%s is not as planned: %s. Its configuration has it, and its restart failed: %w: `qm status %d "+
				"--verbose` on %s shows whether it is paused (`qm resume %[4]d`); the next `pulumi up` restarts it again",
				name, changes, err, vm.VMID, found.Host)
		}

		return nil
	}

	if vm.InTurn == nil {
		return true, restart()
	}

	return true, vm.InTurn(restart)
}

func differences(planned vmdiff.Machine, found proxmoxapi.Machine) []string {
	var list []string
	if found.Stopped {
		list = append(list, "it is stopped")
	}

	for _, change := range vmdiff.Compare(observedMachine(planned, found), planned) {
		list = append(list, change.What)
	}

	return list
}

// observedMachine returns the planned machine with the sizes, disks, cards and devices of its configuration on Proxmox.
// What Proxmox does not report is as planned, and a disk that is larger counts as planned.
func observedMachine(planned vmdiff.Machine, found proxmoxapi.Machine) vmdiff.Machine {
	m := planned

	m.Fields = maps.Clone(m.Fields)
	for _, f := range vmdiff.Fields {
		if value := found.Number(f.Proxmox); value > 0 {
			m.Fields[f.Property] = value
		}
	}

	m.Disks = slices.DeleteFunc(slices.Clone(m.Disks), func(d vmdiff.Disk) bool {
		_, exists := found.DiskGiB(d.Interface)

		return !exists
	})
	for i, d := range m.Disks {
		size, _ := found.DiskGiB(d.Interface)
		m.Disks[i].SizeGiB = min(d.SizeGiB, size)
		m.Disks[i].Options = observedOptions(d, found)
	}

	m.Cards = slices.Clone(m.Cards)
	for i := range m.Cards {
		device := fmt.Sprintf("net%d", i)

		bridge, exists := found.Option(device, "bridge")
		if !exists {
			m.Cards = m.Cards[:i]

			break
		}

		tag, _ := found.Option(device, "tag")
		queues, _ := found.Option(device, "queues")
		m.Cards[i].Bridge, m.Cards[i].VLAN, m.Cards[i].Queues = bridge, 0, 0
		_, _ = fmt.Sscan(tag, &m.Cards[i].VLAN)
		_, _ = fmt.Sscan(queues, &m.Cards[i].Queues)
	}

	m.Devices = observedDevices(planned.Devices, found)

	return m
}

// observedOptions returns the planned options of a disk with those that the machine's configuration states, as the
// provider does for all of them.
func observedOptions(d vmdiff.Disk, found proxmoxapi.Machine) vmdiff.DiskOptions {
	o := d.Options

	for name, flag := range map[string]*bool{"iothread": &o.IOThread, "ssd": &o.SSD} {
		if value, _ := found.Option(d.Interface, name); value != "" {
			*flag = value == "1"
		}
	}

	for name, text := range map[string]*string{"discard": &o.Discard, "cache": &o.Cache, "aio": &o.AIO} {
		if value, _ := found.Option(d.Interface, name); value != "" {
			*text = value
		}
	}

	return o
}

// observedDevices returns the planned devices of the host that the machine's configuration has.
func observedDevices(planned []vmdiff.Device, found proxmoxapi.Machine) (devices []vmdiff.Device) {
	slots := map[bool]int{}

	for _, d := range planned {
		slot := fmt.Sprintf("%s%d", map[bool]string{false: "hostpci", true: "usb"}[d.USB], slots[d.USB])
		slots[d.USB]++

		if _, exists := found.Option(slot, ""); !exists {
			continue
		}

		if d.Mapping != "" { // of a device by its address, only the presence is compared
			d.Mapping, _ = found.Option(slot, "mapping")
		}

		devices = append(devices, d)
	}

	return devices
}
