package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// row is an object in an API response.
type row = map[string]any

func rows(answer any) []row {
	list, _ := answer.([]row)

	return list
}

// text formats a value of a response; nil is "".
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

func qmConfig(_ context.Context, c call, _ arguments, answer any) error {
	config, _ := answer.(row)

	for _, key := range slices.Sorted(maps.Keys(config)) {
		value := text(config[key])
		if key == "description" {
			value = encodeText(value)
		}

		if key != "digest" {
			c.printf("%s: %s\n", key, value)
		}
	}

	return nil
}

// encodeText encodes a description in one line, like Proxmox: control characters, colons, percent signs and non-ASCII
// bytes as %XX.
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

func qmStatus(_ context.Context, c call, _ arguments, answer any) error {
	vm, _ := answer.(row)
	c.printf("status: %s\n", vm["status"])

	return nil
}

func qmList(_ context.Context, c call, _ arguments, answer any) error {
	const mib, gib = 1 << 20, 1 << 30

	for i, vm := range rows(answer) {
		if i == 0 {
			c.printf("%10s %-20s %-10s %-10s %12s %-10s\n", "VMID", "NAME", "STATUS", "MEM(MB)", "BOOTDISK(GB)", "PID")
		}

		memory, _ := vm["maxmem"].(int64)
		disk, _ := vm["maxdisk"].(int64)
		pid := cmp.Or(text(vm["pid"]), "0")
		c.printf(
			"%10v %-20s %-10s %-10d %12.2f %-10s\n", vm["vmid"], vm["name"], vm["status"], memory/mib, float64(disk)/gib, pid,
		)
	}

	return nil
}

func (s *Server) qmUnlock(_ context.Context, _ call, _ arguments, answer any) error {
	vm, _ := answer.(row)
	id, _ := vm["vmid"].(int)

	return s.dc.SetLock(id, "")
}

// qmWait waits until a VM stops, polling every second.
func (s *Server) qmWait(ctx context.Context, c call, a arguments, answer any) error {
	seconds, err := strconv.Atoi(a.get("timeout"))
	if err != nil || seconds < 1 {
		return usageError{"400 Parameter verification failed.\ntimeout: the lab's qm wait requires at least 1\n\n" + a.usage}
	}

	status, _ := answer.(row)
	if status["status"] != "running" {
		return nil
	}

	id, _ := status["vmid"].(int)
	c.printf("waiting until VM %d stops (PID %v)\n", id, status["pid"])

	for range seconds {
		if err := s.dc.Clock().Sleep(ctx, time.Second); err != nil {
			return err
		}

		if vm, err := s.dc.GuestVM(s.host, id); err != nil || !vm.Running {
			return err
		}
	}

	return errors.New("wait failed - got timeout")
}
