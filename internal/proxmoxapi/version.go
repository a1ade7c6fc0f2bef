package proxmoxapi

import (
	"strconv"
	"strings"
)

// FirstImport is the first Proxmox VE that downloads disk images as content type import, from which VMs of any token
// can be made (libpve-storage-perl 8.3.6, qemu-server 8.3.0).
const FirstImport = "8.4"

// ImportsImages reports whether a release of Proxmox VE, such as 8.4, is not older than [FirstImport]; an unknown one
// counts as newer.
func ImportsImages(release string) bool {
	major, minor, known := parseRelease(release)
	firstMajor, firstMinor, _ := parseRelease(FirstImport)

	return !known || major > firstMajor || major == firstMajor && minor >= firstMinor
}

func parseRelease(release string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(release, ".")
	second, _, _ := strings.Cut(rest, ".")

	major, majorErr := strconv.Atoi(first)
	minor, minorErr := strconv.Atoi(second)

	return major, minor, majorErr == nil && minorErr == nil
}
