package spec

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// pciForm is an address as lspci and Proxmox write it: domain (usually left out), bus, device, function (left out =
// all).
var pciForm = regexp.MustCompile(`^(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[01][0-9a-f])(\.[0-7])?$`)

// ParsePCI returns a PCI address as Proxmox writes it: 01:00 is 0000:01:00, all functions of the device, and 01:00.0 is
// 0000:01:00.0, one of them. The error ends with the command that finds it.
func ParsePCI(text string) (string, error) {
	parts := pciForm.FindStringSubmatch(strings.ToLower(text))
	if parts == nil {
		return "", errors.New("is not a PCI address; write it as 01:00 (all functions of the device) or 01:00.0, which the host shows: lspci -Dnn | grep -i nvidia")
	}

	if parts[1] == "" {
		parts[1] = "0000"
	}

	return fmt.Sprintf("%s:%s%s", parts[1], parts[2], parts[3]), nil
}

// sameDevice says whether two normalised addresses share a function: a device with all its functions is each of them.
func sameDevice(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+".") || strings.HasPrefix(b, a+".")
}
