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

// machine is one VM on the host where it is.
type machine struct {
	api  *api
	host string
	id   int
}

func (m machine) path(rest string) string {
	return fmt.Sprintf("/nodes/%s/qemu/%d/%s", m.host, m.id, rest)
}

// config reads the configuration as Proxmox keeps it: one string per key.
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
			out[name] = bit(v)
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

// machineStatus is what a VM does; a lock names the task that holds its configuration.
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

// set changes the configuration at once.
func (m machine) set(ctx context.Context, f form, del []string) error {
	if len(del) > 0 {
		f["delete"] = strings.Join(del, ",")
	}

	err := m.api.tries(ctx, 3, 1, saying("got timeout"), func() error {
		return m.api.call(ctx, http.MethodPut, m.path("config"), f, nil)
	})
	if err != nil {
		return fmt.Errorf("error updating VM: %w", err)
	}

	return nil
}

// unlocked waits until the VM exists and nothing holds its configuration, however long that takes within the context.
func (m machine) unlocked(ctx context.Context) error {
	for {
		status, err := m.status(ctx)
		if err == nil && status.Lock == "" {
			return nil
		}

		if err := sleep(ctx, m.api.o.poll, interrupt(ctx)); err != nil {
			return stopped(err, fmt.Sprintf("VM %d configuration to become unlocked", m.id))
		}
	}
}

// reaches waits for a status after its task has ended: with high availability the manager acts later.
func (m machine) reaches(ctx context.Context, wanted string) error {
	for {
		status, err := m.status(ctx)
		if err != nil {
			return fmt.Errorf("error waiting for VM %d to enter the status %q: %w", m.id, wanted, err)
		}

		if status.Status == wanted {
			return nil
		}

		if err := sleep(ctx, m.api.o.poll, nil); err != nil {
			return stopped(err, fmt.Sprintf("VM %d to enter the status %q", m.id, wanted))
		}
	}
}

func seconds(values object, name string) time.Duration {
	return time.Duration(num(values, name)) * time.Second
}

// start bears a worker that could not be started (three tries) and a proxy that lost patience (599).
func (m machine) start(ctx context.Context, values object) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(values, "timeoutStartVm"))
	defer cancel()

	params := form{"timeout": strconv.Itoa(num(values, "timeoutStartVm"))}

	var upid string

	err := m.api.tries(ctx, 3, 1, saying("got no worker upid"), func() error {
		return m.api.call(ctx, http.MethodPost, m.path("status/start"), params, &upid)
	})
	if err != nil {
		return fmt.Errorf("error starting VM: %w", err)
	}

	err = m.api.wait(ctx, upid, waitOptions{ignore: 599})

	warned := err != nil && strings.Contains(err.Error(), "WARNING") && m.api.hasLog(ctx, upid)
	if err != nil && !warned {
		return fmt.Errorf("error waiting for VM start: %w", err)
	}

	if late := m.reaches(ctx, "running"); late != nil || !warned {
		return late
	}

	return errWarned
}

// errWarned is a start with warnings. It is no failure, but the published provider ends the operation there, without a
// look at the machine.
var errWarned = errors.New("the VM startup task finished with a warning")

// shutdown asks the guest and switches it off when the time is up.
func (m machine) shutdown(ctx context.Context, values object) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(values, "timeoutShutdownVm"))
	defer cancel()

	params := form{"forceStop": "1", "timeout": strconv.Itoa(num(values, "timeoutShutdownVm"))}
	if err := m.api.task(ctx, http.MethodPost, m.path("status/shutdown"), params, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM shutdown: %w", err)
	}

	return m.reaches(ctx, "stopped")
}

func (m machine) stop(ctx context.Context, values object) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(values, "timeoutStopVm"))
	defer cancel()

	if err := m.api.task(ctx, http.MethodPost, m.path("status/stop"), nil, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM stop: %w", err)
	}

	return m.reaches(ctx, "stopped")
}

func (m machine) reboot(ctx context.Context, values object) error {
	params := form{"timeout": strconv.Itoa(num(values, "timeoutReboot"))}
	if err := m.api.task(ctx, http.MethodPost, m.path("status/reboot"), params, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM reboot: %w", err)
	}

	return nil
}

// move takes a move to where the disk is already for done: Proxmox refuses it with these words.
func (m machine) move(ctx context.Context, disk, storage string) error {
	params := form{"disk": disk, "storage": storage, "delete": "1"}

	err := m.api.task(ctx, http.MethodPost, m.path("move_disk"), params, waitOptions{})
	if err != nil && !strings.Contains(err.Error(), "you can't move to the same storage with same format") {
		return fmt.Errorf("error moving VM disk: %w", err)
	}

	return nil
}

// resize sends bytes, which has no rounding.
func (m machine) resize(ctx context.Context, disk string, gigabytes int) error {
	params := form{"disk": disk, "size": strconv.Itoa(gigabytes << 30)}

	err := m.api.tries(ctx, 3, 1, saying("got timeout"), func() error {
		return m.api.task(ctx, http.MethodPut, m.path("resize"), params, waitOptions{})
	})
	if err != nil {
		return fmt.Errorf("error waiting for VM disk resize: %w", err)
	}

	return nil
}

// destroy removes the VM with everything that is its own.
func (m machine) destroy(ctx context.Context) error {
	var upid string

	missing := func(err error) bool { return !gone(err) }

	err := m.api.tries(ctx, 3, 1, missing, func() error {
		return m.api.call(ctx, http.MethodDelete, m.path("?destroy-unreferenced-disks=1&purge=1"), nil, &upid)
	})
	if err != nil {
		return fmt.Errorf("error deleting VM: %w", err)
	}

	if err := m.api.wait(ctx, upid, waitOptions{}); err != nil {
		return fmt.Errorf("error waiting for VM deletion: %w", err)
	}

	return nil
}

// errAbsent says that the cluster has no such VM.
var errAbsent = errors.New("the VM does not exist in the cluster")

// locate finds the host of a VM.
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

	return "", errAbsent
}
