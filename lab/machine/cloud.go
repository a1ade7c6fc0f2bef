package machine

import (
	"context"
	"encoding/json"
	"net/netip"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/cloudguest"
	"talos-proxmox/lab/machine/journal"
)

// talosOS is the name of Talos in images.
const talosOS = "talos"

// runCloud runs a system other than Talos, which cloud-init sets up at boot, until the machine is switched off.
func (m *machine) runCloud(ctx context.Context) outcome {
	m.ms.mu.Lock()
	system, volume := m.system, m.disks.Volume
	m.ms.mu.Unlock()

	var before cloudguest.Guest
	if err := json.Unmarshal(system.State, &before); err != nil && len(system.State) > 0 {
		m.Logf("[%s] the disk's state cannot be read: %s", system.OS, err)
	}

	m.Logf("Linux version 6.12 (%s %s)", system.OS, system.Version)

	after, off, err := cloudguest.Run(ctx, system.OS, system.Agent, before, m.hw, m.cloudWorld())
	if err != nil { // switched off meanwhile: unwritten changes are lost
		return outcome{}
	}

	m.saveCloud(system, volume, after)

	if off {
		m.Logf("reboot: Power down")

		return outcome{off: true}
	}

	<-ctx.Done()

	return outcome{}
}

// unplugged reports whether the machine is cut off from the network.
func (m *machine) unplugged() bool { return m.ms.world.IsUnplugged(m.hw.VMID) }

// cloudWorld returns the environment of a system other than Talos.
func (m *machine) cloudWorld() cloudguest.World {
	world := m.ms.world

	return cloudguest.World{
		Lease: func(bridge, mac string) (netip.Prefix, bool) {
			lease, ok := world.Lease(bridge, mac)

			return lease.Address, ok
		},
		Unplugged:    m.unplugged,
		LacksPackage: world.LacksPackage,
		Read:         func(volume string) ([]byte, error) { return world.VolumeBytes(m.hw.Host, volume) },
		Print:        func(line string) { m.Logf("%s", line) },
		Sleep:        world.Clock().Sleep,
		Boot:         m.durations().BootSystem,
		Install:      m.durations().InstallPackages,
	}
}

// saveCloud writes the state of a system to its disk, and shows it to the guest agent.
func (m *machine) saveCloud(system image.Image, volume string, after cloudguest.Guest) {
	state, err := json.Marshal(after)
	if err == nil {
		system.State, system.Agent = state, after.Agent
		err = m.ms.world.WriteVolume(volume, system)
	}

	if err != nil {
		m.Logf("[%s] the disk's state cannot be written: %s", system.OS, err)
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.guest, m.system = &after, system
	m.changed.fire()
}

// Cloud returns the state of a machine with a system other than Talos, as cloud-init set it up.
func (ms *Machines) Cloud(vmid int) (cloudguest.Guest, bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()

	m := ms.running[vmid]
	if m == nil || m.guest == nil {
		return cloudguest.Guest{}, false
	}

	return *m.guest, true
}

// Serial implements datacentre.Guests: it streams the console since power-on until the machine is off.
func (ms *Machines) Serial(ctx context.Context, vmid int, line func(text string) error) error {
	ms.mu.Lock()
	m := ms.running[vmid]

	if m == nil {
		ms.mu.Unlock()

		return nil
	}

	ms.mu.Unlock()

	for ended, position := false, 0; ; {
		var lines []journal.Line

		ms.mu.Lock()
		lines, position = m.journal.Lines(position)
		changed := m.changed.wait()
		ms.mu.Unlock()

		for _, l := range lines {
			if err := line(l.Text); err != nil {
				return err
			}
		}

		if ended {
			return nil
		}

		select {
		case <-changed:
		case <-m.done: // its last lines are in the journal
			ended = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var _ datacentre.Guests = (*Machines)(nil)
