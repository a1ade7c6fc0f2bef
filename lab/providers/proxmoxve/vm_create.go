package proxmoxve

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// buildVM creates a machine with new disks, and reports whether it exists.
func buildVM(ctx context.Context, m machine, plan object) (bool, error) {
	f := form{"vmid": strconv.Itoa(m.id), "pool": str(plan, "poolId")}

	for name, a := range virtualMachineTable() {
		if a.isConfigKey() && plan[name] != nil {
			a.encode(f, plan[name])
		}
	}

	f.dropEmpty()
	encodeDrives(f, plan)

	return requestCreate(ctx, m, f)
}

// requestCreate tries three times, and deletes VM 0, which never exists, in between: a bug of the published provider
// that servers must tolerate.
func requestCreate(ctx context.Context, m machine, f form) (bool, error) {
	var (
		upid    string
		retried bool
	)

	err := m.api.retry(ctx, 3, 1, anyError, func() error {
		if retried {
			_ = machine{api: m.api, host: m.host}.destroy(ctx) //nolint:errcheck // see above
		}

		retried = true

		return m.api.call(ctx, http.MethodPost, "/nodes/"+m.host+"/qemu", f, &upid)
	})
	if err != nil {
		return false, fmt.Errorf("error creating VM: %w", err)
	}

	if err := m.api.waitTask(ctx, upid, waitOptions{stopOnInterrupt: true}); err != nil {
		return false, fmt.Errorf("error waiting for VM creation: %w", err)
	}

	return true, nil
}
