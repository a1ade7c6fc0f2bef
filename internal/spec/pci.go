package spec

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// pciPattern matches an address as lspci and Proxmox write it: domain (usually omitted), bus, device, function (omitted
// = all).
var pciPattern = regexp.MustCompile(`^(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[01][0-9a-f])(\.[0-7])?$`)

// ParsePCI returns a PCI address as Proxmox writes it: 01:00 is 0000:01:00, all functions of the device, and 01:00.0 is
// 0000:01:00.0, one of them.
func ParsePCI(text string) (string, error) {
	parts := pciPattern.FindStringSubmatch(strings.ToLower(text))
	if parts == nil {
		return "", errors.New("is not a PCI address; write it as 01:00 (all functions of the device) or 01:00.0, which the host shows: lspci -Dnn | grep -i nvidia")
	}

	if parts[1] == "" {
		parts[1] = "0000"
	}

	return fmt.Sprintf("%s:%s%s", parts[1], parts[2], parts[3]), nil
}

// sameDevice reports whether two normalized addresses share a function; an address of a device includes all of its
// functions.
func sameDevice(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".")
}
