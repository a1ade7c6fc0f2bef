package shell

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/lab/datacentre"
)

// onVM is a subcommand on a VM, the first of its arguments.
func (s *Server) onVM(do func(ctx context.Context, c call, a arguments, vm datacentre.VM) error) func(
	context.Context, call, arguments,
) error {
	return func(ctx context.Context, c call, a arguments) error {
		vmid, err := strconv.Atoi(a.fixed[0])
		if err != nil || vmid < 100 {
			return usageError{
				"400 Parameter verification failed.\nvmid: invalid format - value does not look like a valid VM ID\n\n" + a.usage,
			}
		}

		vm, err := s.dc.GuestVM(s.host, vmid)
		if err != nil {
			return err
		}

		return do(ctx, c, a, vm)
	}
}

func qmConfig(_ context.Context, c call, _ arguments, vm datacentre.VM) error {
	for _, key := range slices.Sorted(maps.Keys(vm.Config)) {
		value := vm.Config[key]
		if key == "description" {
			value = encodeText(value)
		}

		c.printf("%s: %s\n", key, value)
	}

	return nil
}

// encodeText is how Proxmox writes a description into one line: control characters, colons, per cent signs and
// everything beyond ASCII as %XX.
func encodeText(text string) string {
	var b strings.Builder

	for i := range len(text) {
		if ch := text[i]; ch < 0x20 || ch > 0x7e || ch == ':' || ch == '%' {
			fmt.Fprintf(&b, "%%%02X", ch)
		} else {
			b.WriteByte(ch)
		}
	}

	return b.String()
}

func statusText(vm datacentre.VM) string {
	if vm.Running {
		return "running"
	}

	return "stopped"
}

func qmStatus(_ context.Context, c call, _ arguments, vm datacentre.VM) error {
	c.printf("status: %s\n", statusText(vm))

	return nil
}

func (s *Server) qmList(_ context.Context, c call, _ arguments) error {
	first := true

	for _, vm := range s.dc.VMs() {
		if vm.Host != s.host {
			continue
		}

		if first {
			c.printf("%10s %-20s %-10s %-10s %12s %-10s\n", "VMID", "NAME", "STATUS", "MEM(MB)", "BOOTDISK(GB)", "PID")

			first = false
		}

		disk := float64(vm.Config.BootDiskBytes()) / float64(datacentre.GiB)
		c.printf("%10d %-20s %-10s %-10d %12.2f %-10d\n", vm.ID, vm.Name, statusText(vm), vm.Config.MemoryMiB(), disk, vm.PID)
	}

	return nil
}

func (s *Server) qmUnlock(_ context.Context, _ call, _ arguments, vm datacentre.VM) error {
	return s.dc.SetLock(vm.ID, "")
}

// qmWait waits until a VM has stopped, looking every second.
func (s *Server) qmWait(ctx context.Context, c call, a arguments, vm datacentre.VM) error {
	seconds, err := strconv.Atoi(a.get("timeout"))
	if err != nil || seconds < 1 {
		return usageError{"400 Parameter verification failed.\ntimeout: the lab's qm wait has one, from 1 on\n\n" + a.usage}
	}

	if !vm.Running {
		return nil
	}

	c.printf("waiting until VM %d stops (PID %d)\n", vm.ID, vm.PID)

	for range seconds {
		if err := s.dc.Clock().Sleep(ctx, time.Second); err != nil {
			return err
		}

		if vm, err = s.dc.GuestVM(s.host, vm.ID); err != nil || !vm.Running {
			return err
		}
	}

	return errors.New("wait failed - got timeout")
}
