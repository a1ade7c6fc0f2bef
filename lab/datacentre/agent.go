package datacentre

// Agent asks the QEMU guest agent for the interfaces; the errors are PVE's own.
func (d *Datacentre) Agent(hostName string, vmid int) ([]AgentInterface, error) {
	v, err := d.GuestVM(hostName, vmid)

	switch {
	case err != nil:
		return nil, err
	case !ParseProperties(v.Config["agent"], "enabled").Bool("enabled"):
		return nil, refuse("No QEMU guest agent configured")
	case !v.Running:
		return nil, refuse("VM %d is not running", vmid)
	}

	d.mu.Lock()
	guests := d.guests
	d.mu.Unlock()

	if guests != nil && v.Hardware.AgentEnabled {
		unlock := d.locks.guest(vmid)
		defer unlock()

		if list, ok := guests.Agent(vmid); ok {
			return list, nil
		}
	}

	return nil, refuse("QEMU guest agent is not running")
}
