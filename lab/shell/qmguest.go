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

func (s *Server) qmConfig(_ context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	vm, err := s.dc.GuestVM(s.host, vmid)
	if err != nil {
		return err
	}

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

func (s *Server) qmStatus(_ context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	vm, err := s.dc.GuestVM(s.host, vmid)
	if err != nil {
		return err
	}

	if a.truth("verbose") {
		c.printf("cpus: %s\nmaxmem: %d\nname: %s\n", value(vm.Config["cores"], "1"), memoryMiB(vm)<<20, vm.Name)

		if vm.PID != 0 {
			c.printf("pid: %d\n", vm.PID)
		}
	}

	c.printf("status: %s\n", statusText(vm))

	if a.truth("verbose") {
		c.printf("vmid: %d\n", vm.ID)
	}

	return nil
}

func value(text, fallback string) string {
	if text == "" {
		return fallback
	}

	return text
}

func memoryMiB(vm datacentre.VM) int64 {
	n, err := strconv.ParseInt(datacentre.ParseProperties(vm.Config["memory"], "current").Get("current"), 10, 64)
	if err != nil {
		return 512
	}

	return n
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

		c.printf(
			"%10d %-20s %-10s %-10d %12.2f %-10d\n", vm.ID, vm.Name, statusText(vm), memoryMiB(vm), bootDiskGiB(vm), vm.PID,
		)
	}

	return nil
}

func bootDiskGiB(vm datacentre.VM) float64 {
	for _, key := range vm.Config.BootOrder() {
		if size, err := datacentre.ParseSize(datacentre.ParseProperties(vm.Config[key], "file").Get("size")); err == nil &&
			datacentre.IsDrive(key) {
			return float64(size) / float64(datacentre.GiB)
		}
	}

	return 0
}

func (s *Server) qmClone(ctx context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	newID, err := a.vmid(1, "newid")
	if err != nil {
		return err
	}

	r := datacentre.CloneRequest{
		NewID: newID, Name: a.options["name"], Description: a.options["description"], Target: a.options["target"],
		Storage: a.options["storage"], Format: a.options["format"], Pool: a.options["pool"],
	}

	if _, stated := a.options["full"]; stated {
		full := a.truth("full")
		r.Full = &full
	}

	upid, err := s.dc.CloneVM(apiUser, s.host, vmid, r)

	return s.task(ctx, c, upid, err)
}

func (s *Server) qmTemplate(ctx context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	upid, err := s.dc.ConvertToTemplate(apiUser, s.host, vmid)

	return s.task(ctx, c, upid, err)
}

func (s *Server) qmDestroy(ctx context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	upid, err := s.dc.DestroyVM(apiUser, s.host, vmid, datacentre.DestroyOptions{
		Purge:                    a.truth("purge"),
		DestroyUnreferencedDisks: a.truth("destroy-unreferenced-disks"),
		SkipLock:                 a.truth("skiplock"),
	})

	return s.task(ctx, c, upid, err)
}

func (s *Server) qmUnlock(_ context.Context, _ call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	if _, err := s.dc.GuestVM(s.host, vmid); err != nil {
		return err
	}

	return s.dc.SetLock(vmid, "")
}

// qmWait waits until a VM has stopped, looking every second.
func (s *Server) qmWait(ctx context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	bound := 0

	if text, stated := a.options["timeout"]; stated {
		if bound, err = strconv.Atoi(text); err != nil || bound < 1 {
			return usageError{
				fmt.Sprintf("400 Parameter verification failed.\ntimeout: value must have a minimum value of 1\n\n%s", a.usage),
			}
		}
	}

	vm, err := s.dc.GuestVM(s.host, vmid)
	if err != nil || !vm.Running {
		return err
	}

	c.printf("waiting until VM %d stops (PID %d)\n", vmid, vm.PID)

	for second := 0; bound == 0 || second < bound; second++ {
		if err := s.dc.Clock().Sleep(ctx, time.Second); err != nil {
			return err
		}

		if vm, err = s.dc.GuestVM(s.host, vmid); err != nil || !vm.Running {
			return err
		}
	}

	return errors.New("wait failed - got timeout")
}

func (s *Server) qmResize(ctx context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	upid, err := s.dc.ResizeDisk(apiUser, s.host, vmid, a.fixed[1], a.fixed[2])

	return s.task(ctx, c, upid, err)
}

func (s *Server) qmMove(ctx context.Context, c call, a arguments) error {
	vmid, err := a.vmid(0, "vmid")
	if err != nil {
		return err
	}

	upid, err := s.dc.MoveDisk(apiUser, s.host, vmid, datacentre.MoveRequest{
		Disk: a.fixed[1], Storage: a.fixed[2], Format: a.options["format"], Delete: a.truth("delete"),
	})

	return s.task(ctx, c, upid, err)
}

// power is a subcommand that starts one task on a VM.
func (s *Server) power(
	do func(user, host string, vmid int) (string, error),
) func(context.Context, call, arguments) error {
	return func(ctx context.Context, c call, a arguments) error {
		vmid, err := a.vmid(0, "vmid")
		if err != nil {
			return err
		}

		upid, err := do(apiUser, s.host, vmid)

		return s.task(ctx, c, upid, err)
	}
}

func (s *Server) qmShutdown(
	do func(user, host string, vmid int, o datacentre.ShutdownOptions) (string, error),
) func(context.Context, call, arguments) error {
	return func(ctx context.Context, c call, a arguments) error {
		vmid, err := a.vmid(0, "vmid")
		if err != nil {
			return err
		}

		o := datacentre.ShutdownOptions{ForceStop: a.truth("forceStop")}

		if text, stated := a.options["timeout"]; stated {
			seconds, err := strconv.Atoi(text)
			if err != nil || seconds < 0 {
				return usageError{
					fmt.Sprintf(
						"400 Parameter verification failed.\ntimeout: type check ('integer') failed - got '%s'\n\n%s", text, a.usage,
					),
				}
			}

			o.Timeout = time.Duration(seconds) * time.Second
		}

		upid, err := do(apiUser, s.host, vmid, o)

		return s.task(ctx, c, upid, err)
	}
}
