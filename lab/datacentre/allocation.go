package datacentre

import (
	"context"
	"fmt"
	"strings"
)

// AllocateVolume makes an empty disk of a VMID, which no VM need have, and returns its id.
func (d *Datacentre) AllocateVolume(ctx context.Context, hostName, storageName, name string, vmid int, bytes int64) (
	string, error,
) {
	d.mu.Lock()
	defer d.mu.Unlock()

	s, err := d.needStorage(hostName, storageName, "images")
	if err != nil {
		return "", err
	}

	// A directory storage has a folder for every VM, and takes any name there.
	bare, format, _ := strings.Cut(name, ".")
	if prefix := fmt.Sprintf("vm-%d-", vmid); s.Path == "" && !strings.HasPrefix(bare, prefix) {
		return "", Refuse("illegal name '%s' - should be '%s*'", name, prefix)
	}

	if format == "" {
		format = defaultFormat
	}

	made, err := d.allocate(ctx, s, newDisk{vmid: vmid, name: s.place(vmid, bare, format), format: format, size: bytes})
	if err != nil {
		return "", err
	}

	return made.ID, nil
}
