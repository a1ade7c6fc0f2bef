package ownership

import (
	"slices"
	"strings"
)

// autoscaledPrefix begins the tag of machines that an autoscaler added.
const autoscaledPrefix = "autoscaled-"

// AutoscaledTag returns the Proxmox tag of the machines that an autoscaler adds to a pool of a stack's cluster: clones
// have the description of their template, or the autoscaler's.
func AutoscaledTag(stackID, cluster, pool string) string {
	return autoscaledPrefix + stackID + "-" + cluster + "-" + pool
}

// IsAutoscaled reports whether tags, as Proxmox lists them, say that an autoscaler added a machine to a pool of the
// stack.
func IsAutoscaled(tags, stackID string) bool {
	return stackID != "" && slices.ContainsFunc(TagsOf(tags), func(tag string) bool {
		return strings.HasPrefix(tag, autoscaledPrefix+stackID+"-")
	})
}

// TagsOf splits tags as Proxmox lists them.
func TagsOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";, ", r) })
}
