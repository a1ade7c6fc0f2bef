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

// wanted are the machines of a plan by VMID, without those that are skipped: these may be as they are.
func wanted(plan *spec.Plan) map[int]vmdiff.Machine {
	machines := map[int]vmdiff.Machine{}

	for _, m := range plan.Members() {
		if !m.Skip {
			planned := vmdiff.Wanted(m)
			planned.TakesVolumes = false // a disk that it lacks is work that was left undone
			machines[m.VMID] = planned
		}
	}

	return machines
}

// finishUpdate restarts a machine whose configuration on Proxmox is as planned from its next start on: the restart of
// an earlier update failed, or was cut short, and no refresh shows it. The error is what the machine lacks once the run
// has made its updates: where the update of a VM failed, the state has what was planned, and the next run finds nothing
// to do. In a preview, which has updated nothing, a restart is a warning, and what the machine lacks is no error.
func (m *machines) finishUpdate(
	ctx context.Context, vm vmlookup.VM, planned vmdiff.Machine, found proxmoxapi.Machine,
) (restarted bool, err error) {
	differs := differences(planned, found)
	if len(differs) == 0 || vm.Silent && found.Stopped && len(differs) == 1 {
		return false, nil
	}

	name := fmt.Sprintf("%s (VM %d on host %s)", vm.Name, vm.VMID, found.Host)
	lacks := strings.Join(differs, ", ")

	waits := false

	if !found.Stopped {
		config, err := m.asked.Restarted(ctx, found.Host, vm.VMID)
		waits = err == nil && len(differences(planned, proxmoxapi.Machine{Config: config})) == 0
	}

	switch {
	case m.preview && waits:
		return true, m.warn(name+" is restarted for what an earlier update left: "+lacks, nil)
	case m.preview && found.Stopped:
		return false, m.warn(name+" is stopped: `pulumi up --refresh` starts it", nil)
	case m.preview:
		return false, nil
	case !waits:
		return false, fmt.Errorf("%s is not as planned: %s. A run that failed left it so, or someone changed it: "+
			"`pulumi up --refresh` fixes it", name, lacks)
	}

	restart := func() error {
		if err := m.asked.Restart(ctx, found.Host, vm.VMID); err != nil {
			return fmt.Errorf("%s is not as planned: %s. Its configuration has it, and its restart failed: %w: `qm status %d "+
				"--verbose` on %s shows whether it is paused (`qm resume %[4]d`); the next `pulumi up` restarts it again",
				name, lacks, err, vm.VMID, found.Host)
		}

		return nil
	}

	if vm.InTurn == nil {
		return true, restart()
	}

	return true, vm.InTurn(restart)
}

func differences(planned vmdiff.Machine, found proxmoxapi.Machine) []string {
	var differs []string
	if found.Stopped {
		differs = append(differs, "it is stopped")
	}

	for _, change := range vmdiff.Compare(asFound(planned, found), planned) {
		differs = append(differs, change.What)
	}

	return differs
}

// asFound is a machine as it is planned, with what its configuration on Proxmox says of sizes, disks, cards and
// devices. What Proxmox does not say is as planned, and a disk that is larger is no work that was left undone.
func asFound(planned vmdiff.Machine, found proxmoxapi.Machine) vmdiff.Machine {
	m := planned

	m.Fields = maps.Clone(m.Fields)
	for _, f := range vmdiff.Fields {
		if value := found.Number(f.Proxmox); value > 0 {
			m.Fields[f.Property] = value
		}
	}

	m.Disks = slices.DeleteFunc(slices.Clone(m.Disks), func(d vmdiff.Disk) bool {
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
