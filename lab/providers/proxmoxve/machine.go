package proxmoxve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// machine is a VM on its host.
type machine struct {
	api  *api
	host string
	id   int
}

func (m machine) path(rest string) string {
	return fmt.Sprintf("/nodes/%s/qemu/%d/%s", m.host, m.id, rest)
}

// config reads the configuration in Proxmox' form: one string per key.
func (m machine) config(ctx context.Context) (map[string]string, error) {
	var raw map[string]any
	if err := m.api.call(ctx, http.MethodGet, m.path("config"), nil, &raw); err != nil {
		return nil, fmt.Errorf("error retrieving VM %d: %w", m.id, err)
	}

	out := map[string]string{}

	for name, v := range raw {
		switch v := v.(type) {
		case string:
			out[name] = v
		case float64:
			out[name] = strconv.FormatFloat(v, 'f', -1, 64)
		case bool:
			out[name] = formatBool(v)
		default:
			encoded, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("unable to read %s of VM %d: %w", name, m.id, err)
			}

			out[name] = string(encoded)
		}
	}

	return out, nil
}

// machineStatus is the status of a VM; a lock names the task that holds its configuration.
type machineStatus struct {
	Status string `json:"status"`
	Lock   string `json:"lock"`
}

func (m machine) status(ctx context.Context) (machineStatus, error) {
	var out machineStatus
	if err := m.api.call(ctx, http.MethodGet, m.path("status/current"), nil, &out); err != nil {
		return out, fmt.Errorf("error retrieving VM status: %w", err)
	}

	return out, nil
}

// setConfig changes the configuration immediately.
func (m machine) setConfig(ctx context.Context, f form, del []string) error {
	if len(del) > 0 {
		f["delete"] = strings.Join(del, ",")
	}

	err := m.api.retry(ctx, 3, 1, errorContains("got timeout"), func() error {
		return m.api.call(ctx, http.MethodPut, m.path("config"), f, nil)
	})
	if err != nil {
		return fmt.Errorf("error updating VM: %w", err)
	}

	return nil
}

// waitUnlocked waits until the VM exists and its configuration is not locked.
func (m machine) waitUnlocked(ctx context.Context) error {
	for {
		status, err := m.status(ctx)
		if err == nil && status.Lock == "" {
			return nil
		}

		if err := sleep(ctx, m.api.o.poll, interrupt(ctx)); err != nil {
			return waitError(err, fmt.Sprintf("VM %d configuration to become unlocked", m.id))
		}
	}
}

// waitStatus waits for a status after a task has ended: with high availability, the manager acts later.
func (m machine) waitStatus(ctx context.Context, wanted string) error {
	for {
		status, err := m.status(ctx)
		if err != nil {
			return fmt.Errorf("error waiting for VM %d to enter the status %q: %w", m.id, wanted, err)
		}

		if status.Status == wanted {
			return nil
		}

		if err := sleep(ctx, m.api.o.poll, nil); err != nil {
			return waitError(err, fmt.Sprintf("VM %d to enter the status %q", m.id, wanted))
		}
	}
}

func seconds(values object, name string) time.Duration {
	return time.Duration(num(values, name)) * time.Second
}

// start makes three tries if no worker could be started, and tolerates a proxy's timeout (599).
func (m machine) start(ctx context.Context, values object) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(values, "timeoutStartVm"))
	defer cancel()

	params := form{"timeout": strconv.Itoa(num(values, "timeoutStartVm"))}

	var upid string

	err := m.api.retry(ctx, 3, 1, errorContains("got no worker upid"), func() error {
		return m.api.call(ctx, http.MethodPost, m.path("status/start"), params, &upid)
	})
	if err != nil {
		return fmt.Errorf("error starting VM: %w", err)
	}

	err = m.api.waitTask(ctx, upid, waitOptions{ignoredStatus: 599})

	warned := err != nil && strings.Contains(err.Error(), "WARNING") && m.api.hasLog(ctx, upid)
	if err != nil && !warned {
		return fmt.Errorf("error waiting for VM start: %w", err)
	}

	if statusErr := m.waitStatus(ctx, "running"); statusErr != nil || !warned {
		return statusErr
	}

	return errStartWarning
}

// errStartWarning is a start with warnings. It is no failure, but the published provider ends the operation without
// reading the machine.
var errStartWarning = errors.New("the VM startup task finished with a warning")

// shutdown shuts the guest down, and stops the machine after the timeout.
func (m machine) shutdown(ctx context.Context, values object) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(values, "timeoutShutdownVm"))
	defer cancel()

	params := form{"forceStop": "1", "timeout": strconv.Itoa(num(values, "timeoutShutdownVm"))}
	if err := m.api.runTask(ctx, http.MethodPost, m.path("status/shutdown"), params, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM shutdown: %w", err)
	}

	return m.waitStatus(ctx, "stopped")
}

func (m machine) stop(ctx context.Context, values object) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(values, "timeoutStopVm"))
	defer cancel()

	if err := m.api.runTask(ctx, http.MethodPost, m.path("status/stop"), nil, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM stop: %w", err)
	}

	return m.waitStatus(ctx, "stopped")
}

func (m machine) reboot(ctx context.Context, values object) error {
	params := form{"timeout": strconv.Itoa(num(values, "timeoutReboot"))}
	if err := m.api.runTask(ctx, http.MethodPost, m.path("status/reboot"), params, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM reboot: %w", err)
	}

	return nil
}

// moveDisk ignores the error with which Proxmox refuses a move to the disk's own storage.
func (m machine) moveDisk(ctx context.Context, disk, storage string) error {
	params := form{"disk": disk, "storage": storage, "delete": "1"}

	err := m.api.runTask(ctx, http.MethodPost, m.path("move_disk"), params, waitOptions{})
	if err != nil && !strings.Contains(err.Error(), "you can't move to the same storage with same format") {
		return fmt.Errorf("error moving VM disk: %w", err)
	}

	return nil
}

// resizeDisk sends the size in bytes, which avoids rounding.
func (m machine) resizeDisk(ctx context.Context, disk string, gigabytes int) error {
	params := form{"disk": disk, "size": strconv.Itoa(gigabytes << 30)}

	err := m.api.retry(ctx, 3, 1, errorContains("got timeout"), func() error {
		return m.api.runTask(ctx, http.MethodPut, m.path("resize"), params, waitOptions{})
	})
	if err != nil {
		return fmt.Errorf("error waiting for VM disk resize: %w", err)
	}

	return nil
}

// destroy deletes the VM with all its disks and references.
func (m machine) destroy(ctx context.Context) error {
	var upid string

	notFound := func(err error) bool { return !isNotFound(err) }

	err := m.api.retry(ctx, 3, 1, notFound, func() error {
		return m.api.call(ctx, http.MethodDelete, m.path("?destroy-unreferenced-disks=1&purge=1"), nil, &upid)
	})
	if err != nil {
		return fmt.Errorf("error deleting VM: %w", err)
	}

	if err := m.api.waitTask(ctx, upid, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM deletion: %w", err)
	}

	return nil
}

// errNoVM says that the cluster does not have a VM.
var errNoVM = errors.New("the VM does not exist in the cluster")

// locate returns the host of a VM.
func (a *api) locate(ctx context.Context, id int) (string, error) {
	var found []struct {
		VMID int    `json:"vmid"`
		Node string `json:"node"`
	}

	if err := a.call(ctx, http.MethodGet, "/cluster/resources", form{"type": "vm"}, &found); err != nil {
		return "", fmt.Errorf("unable to list the VMs of the cluster: %w", err)
	}

	for _, vm := range found {
		if vm.VMID == id {
			return vm.Node, nil
		}
	}

	return "", errNoVM
}
