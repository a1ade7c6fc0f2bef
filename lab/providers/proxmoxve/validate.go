package proxmoxve

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

func notEmpty(v any) string {
	if v == "" {
		return "expected a name, got an empty string"
	}

	return ""
}

func oneOf(allowed ...string) func(any) string {
	return func(v any) string {
		if slices.Contains(allowed, v.(string)) {
			return ""
		}

		return fmt.Sprintf("expected one of %q, got %q", allowed, v)
	}
}

func between(low, high float64) func(any) string {
	return func(v any) string {
		if n := v.(float64); n < low || n > high {
			return fmt.Sprintf("expected to be in the range (%.0f - %.0f), got %.0f", low, high, n)
		}

		return ""
	}
}

func comment(v any) string {
	switch s := v.(string); {
	case s == "":
		return "Attribute comment UTF-8 character count must be at least 1, got: 0"
	case strings.TrimSpace(s) != s:
		return fmt.Sprintf("must not start or end with whitespace, got %q", s)
	default:
		return ""
	}
}

func vmID(v any) string { return between(100, 2147483647)(v) }

func matching(pattern, meaning string) func(any) string {
	expression := regexp.MustCompile(pattern)

	return func(v any) string {
		if expression.MatchString(v.(string)) {
			return ""
		}

		return fmt.Sprintf("%s, got %q", meaning, v)
	}
}

func duration(v any) string {
	if _, err := time.ParseDuration(v.(string)); err != nil {
		return fmt.Sprintf("expected a duration such as 15m, got %q", v)
	}

	return ""
}

func media(v any) string {
	if s := v.(string); s == "" || s == "none" || s == "cdrom" {
		return ""
	}

	return matching(`^[a-zA-Z][a-zA-Z0-9_.-]*:.+`, `expected "none", "cdrom" or a file id such as local:iso/talos.iso`)(v)
}

func serialDevice(v any) string {
	if s := v.(string); s == "socket" || strings.HasPrefix(s, "/dev/") {
		return ""
	}

	return fmt.Sprintf(`expected "socket" or a path below /dev/, got %q`, v)
}

func fileFormat(v any) string { return oneOf("", "qcow2", "raw", "vmdk")(v) }
func macAddress(v any) string {
	return matching(`(?i)^$|^([0-9A-F]{2}:){5}[0-9A-F]{2}$`, "expected a MAC address such as 02:00:00:00:00:01")(v)
}

func webAddress(v any) string { return matching(`https?://.*`, "Must match http url regex")(v) }
func machineType(v any) string {
	return matching(`^$|^(pc|q35|virt)(-[a-z0-9.+-]+)?$`, "must be a valid machine type")(v)
}

func diskInterface(v any) string {
	return matching(
		`^(ide[0-3]|sata[0-5]|scsi([0-9]|[12][0-9]|30)|virtio([0-9]|1[0-5]))$`,
		"expected one of ide0..3, sata0..5, scsi0..30, virtio0..15",
	)(v)
}

func cloudInitInterface(v any) string {
	return matching(`^$|^(ide[0-3]|sata[0-5]|scsi([0-9]|[12][0-9]|30))$`, "one of ide0..3|sata0..5|scsi0..30")(v)
}
