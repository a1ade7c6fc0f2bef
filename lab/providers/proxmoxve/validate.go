package proxmoxve

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Validation of single values, as published.
var (
	notEmpty   = matching(`.`, "expected a name")
	vmID       = between(100, 2147483647)
	comment    = matching(`^\S(.*\S)?$`, "must have at least 1 character, and must not start or end with whitespace")
	webAddress = matching(`https?://.*`, "Must match http url regex")
	macAddress = matching(
		`(?i)^$|^([0-9A-F]{2}:){5}[0-9A-F]{2}$`, "expected a MAC address such as 02:00:00:00:00:01",
	)
	machineType  = matching(`^$|^(pc|q35|virt)(-[a-z0-9.+-]+)?$`, "must be a valid machine type")
	serialDevice = matching(`^(socket$|/dev/)`, `expected "socket" or a path below /dev/`)
	media        = matching(
		`^(none|cdrom)?$|^[a-zA-Z][a-zA-Z0-9_.-]*:.+`, `expected "none", "cdrom" or a file id such as local:iso/talos.iso`,
	)
	fileFormat    = oneOf("", "qcow2", "raw", "vmdk")
	cpuSet        = matching(`^$|^\d+[\d,-]*$`, "must contain numbers or number ranges separated by ','")
	diskInterface = matching(
		`^(ide[0-3]|sata[0-5]|scsi([0-9]|[12][0-9]|30)|virtio([0-9]|1[0-5]))$`,
		"expected one of ide0..3, sata0..5, scsi0..30, virtio0..15",
	)
	cloudInitInterface = matching(
		`^$|^(ide[0-3]|sata[0-5]|scsi([0-9]|[12][0-9]|30))$`, "one of ide0..3|sata0..5|scsi0..30",
	)
	// As published, a valid part is enough; Proxmox validates the whole name.
	tokenName = matching(`[A-Za-z][A-Za-z0-9.\-_]+`, "Attribute token_name must be a valid token identifier")
)

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

func matching(pattern, meaning string) func(any) string {
	expression := regexp.MustCompile(pattern)

	return func(v any) string {
		if expression.MatchString(v.(string)) {
			return ""
		}

		return fmt.Sprintf("%s, got: %s", meaning, v)
	}
}

func duration(v any) string {
	if _, err := time.ParseDuration(v.(string)); err != nil {
		return fmt.Sprintf("expected a duration such as 15m, got %q", v)
	}

	return ""
}
