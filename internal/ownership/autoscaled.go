package ownership

import (
	"slices"
	"strings"
)

// AutoscaledTag returns the Proxmox tag of the machines that an autoscaler adds to a pool of a stack's cluster: clones
// have the description of their template, or the autoscaler's.
func AutoscaledTag(stackID, cluster, pool string) string {
	return "autoscaled-" + stackID + "-" + cluster + "-" + pool
}

// HasTag reports whether a tag is among tags as Proxmox lists them.
func HasTag(tags, tag string) bool {
	return slices.Contains(strings.FieldsFunc(tags, func(r rune) bool { return strings.ContainsRune(";, ", r) }), tag)
}
