package datacentre

import (
	"context"
	"fmt"
)

// Agent asks the QEMU guest agent for the interfaces; the errors are PVE's own.
func (d *Datacentre) Agent(hostName string, vmid int) ([]AgentInterface, error) {
	d.mu.Mutex.Lock()
	defer d.mu.Mutex.Unlock()

	v, err := d.needVM(hostName, vmid)

	switch {
	case err != nil:
		return nil, err
	case !ParseProperties(v.Config["agent"], "enabled").Bool("enabled"):
		return nil, Refuse("No QEMU guest agent configured")
	case !v.Running:
		return nil, Refuse("VM %d is not running", vmid)
	}

	var (
		list []AgentInterface
		runs bool
	)

	if v.Hardware.AgentEnabled {
		d.withGuest(vmid, func(g Guests) { list, runs = g.Agent(vmid) })
	}

	if !runs {
		return nil, Refuse("QEMU guest agent is not running")
	}

	return list, nil
}

// withGuest calls what runs inside a VM, where something does.
func (d *Datacentre) withGuest(vmid int, do func(Guests)) {
	guests, turn := d.guests, d.lockFile(fmt.Sprintf("guest/%d", vmid))
	if guests == nil {
		return
	}

	_ = d.wait(func() error {
		_ = turn.Acquire(context.Background(), exclusive) // without an end there is no error
		defer turn.Release(exclusive)

		do(guests)

		return nil
	})
}
