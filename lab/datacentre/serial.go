package datacentre

import (
	"context"
	"fmt"
)

// Serial follows the first serial port of a VM as a program does that connects to its socket: until the VM is off, the
// context ends, or line returns an error.
func (d *Datacentre) Serial(ctx context.Context, hostName string, vmid int, line func(text string) error) error {
	v, err := d.GuestVM(hostName, vmid)

	switch {
	case err != nil || !v.Running || v.Config["serial0"] != "socket":
		return fmt.Errorf("VM %d has no such socket", vmid)
	default:
	}

	guests := locked(d, func() Guests { return d.guests })
	if guests == nil {
		return nil
	}

	return guests.Serial(ctx, vmid, line)
}
