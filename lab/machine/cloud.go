package machine

import (
	"encoding/json"
	"net/netip"

	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/cloudguest"
)

// talosOS is Talos' name in images.
const talosOS = "talos"

// startCloud runs a system other than Talos, which cloud-init sets up at its start.
func (m *machine) startCloud(system image.Image, volume string) {
	m.noSystem = true // that has a Talos API

	var before cloudguest.Guest
	if err := json.Unmarshal(system.State, &before); err != nil && len(system.State) > 0 {
		m.logf("[%s] the disk's state cannot be read: %s", system.OS, err)
	}

	after, console := cloudguest.Start(before, m.hw, func(bridge, mac string) (netip.Prefix, bool) {
		lease, ok := m.ms.world.Lease(bridge, mac)

		return lease.Address, ok
	})
	for _, line := range console {
		m.logf("[%s] %s", system.OS, line)
	}

	m.guest = &after

	state, err := json.Marshal(after)
	if err == nil {
		system.State = state
		err = m.ms.world.WriteVolume(volume, system)
	}

	if err != nil {
		m.logf("[%s] the disk's state cannot be written: %s", system.OS, err)
	}
}

// Cloud is what cloud-init made of a machine that runs another system than Talos; false where none runs.
func (ms *Machines) Cloud(vmid int) (cloudguest.Guest, bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()

	m := ms.running[vmid]
	if m == nil || m.guest == nil {
		return cloudguest.Guest{}, false
	}

	return *m.guest, true
}
