package proxmoxve

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// buildVM creates a machine with new disks and tells whether there is something to keep.
func buildVM(ctx context.Context, m machine, plan object) (bool, error) {
	f := form{"vmid": strconv.Itoa(m.id), "pool": str(plan, "poolId")}

	for name, a := range virtualMachine() {
		if a.configured() && plan[name] != nil {
			a.encode(f, plan[name])
		}
	}

	f.clean()
	encodeDrives(f, plan)

	return createCall(ctx, m, f)
}

// createCall asks three times, with a deletion of VM 0 in between, which never exists: a slip of the published provider
// that servers must bear.
func createCall(ctx context.Context, m machine, f form) (bool, error) {
	var (
		upid  string
		tried bool
	)

	err := m.api.tries(ctx, 3, 1, always, func() error {
		if tried {
			_ = machine{api: m.api, host: m.host}.destroy(ctx) //nolint:errcheck // see above
		}

		tried = true

		return m.api.call(ctx, http.MethodPost, "/nodes/"+m.host+"/qemu", f, &upid)
	})
	if err != nil {
		return false, fmt.Errorf("error creating VM: %w", err)
	}

	if err := m.api.wait(ctx, upid, waitOptions{undo: true}); err != nil {
		return false, fmt.Errorf("error waiting for VM creation: %w", err)
	}

	return true, nil
}
