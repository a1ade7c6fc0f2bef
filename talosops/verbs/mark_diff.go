package verbs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/talosops/kube"
)

// Annotations of a node with what was set last: the keys of labels, and taints as key:Effect. Kubernetes' own record,
// by field managers, treats the list of taints as a whole, and Talos keeps its own in annotations as well.
const (
	labelsAnnotation = "talos-proxmox/labels"
	taintsAnnotation = "talos-proxmox/taints"
)

// diffMarks returns the patch that gives a node its labels and taints, or nil, and a summary. The summary has counts
// only: a configuration may be secret.
func diffMarks(n kube.Node, want marks) (*kube.NodePatch, string) {
	var (
		patch        kube.NodePatch
		set, removed counts
	)

	patch.Metadata.ResourceVersion = n.Version

	patch.Metadata.Labels = map[string]*string{}
	for key, value := range want.Labels {
		if have, ok := n.Labels[key]; !ok || have != value {
			patch.Metadata.Labels[key] = &value
			set.labels++
		}
	}

	for _, key := range previouslySet(n, labelsAnnotation) {
		_, wanted := want.Labels[key]
		if _, exists := n.Labels[key]; exists && !wanted {
			patch.Metadata.Labels[key] = nil
			removed.labels++
		}
	}

	taints := diffTaints(n, want.Taints, &set, &removed)
	if set.taints+removed.taints > 0 {
		patch.Spec = &kube.SpecPatch{Taints: taints}
	}

	if want.ProviderID != "" && n.ProviderID == "" {
		if patch.Spec == nil {
			patch.Spec = &kube.SpecPatch{}
		}

		patch.Spec.ProviderID = want.ProviderID
		set.ids++
	}

	ids := make([]string, 0, len(want.Taints))
	for _, t := range want.Taints {
		ids = append(ids, taintID(t))
	}

	patch.Metadata.Annotations = map[string]*string{}

	for annotation, list := range map[string][]string{
		labelsAnnotation: slices.Collect(maps.Keys(want.Labels)), taintsAnnotation: ids,
	} {
		slices.Sort(list)

		if !slices.Equal(list, previouslySet(n, annotation)) {
			patch.Metadata.Annotations[annotation] = encodeList(list)
		}
	}

	if len(patch.Metadata.Annotations)+len(patch.Metadata.Labels) == 0 && patch.Spec == nil {
		return nil, "up to date"
	}

	return &patch, summarizeChanges(set, removed)
}

// diffTaints returns the taints that the node should have.
func diffTaints(n kube.Node, want []taint, set, removed *counts) []corev1.Taint {
	previous := previouslySet(n, taintsAnnotation)
	list := []corev1.Taint{}

	missing := make([]corev1.Taint, 0, len(want))
	for _, t := range want {
		missing = append(missing, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}

	for _, have := range n.Taints {
		i := slices.IndexFunc(missing, func(t corev1.Taint) bool { return t.MatchTaint(&have) })
		switch {
		case i < 0 && slices.Contains(previous, have.Key+":"+string(have.Effect)):
			removed.taints++

			continue
		case i < 0 || missing[i].Value == have.Value:
			list = append(list, have)
		default:
			list = append(list, missing[i])
			set.taints++
		}

		if i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		}
	}

	set.taints += len(missing)

	return append(list, missing...)
}

// previouslySet returns the list in an annotation, or nil if it holds anything else.
func previouslySet(n kube.Node, annotation string) []string {
	var list []string
	if json.Unmarshal([]byte(n.Annotations[annotation]), &list) != nil {
		return nil
	}

	return list
}

func encodeList(list []string) *string {
	if len(list) == 0 {
		return nil
	}

	encoded, _ := json.Marshal(list) // strings always encode
	text := string(encoded)

	return &text
}

type counts struct{ labels, taints, ids int }

// summarizeChanges counts the changes of each kind.
func summarizeChanges(set, removed counts) string {
	var parts []string

	for _, c := range []struct {
		count int
		what  string
	}{
		{set.labels, "label%s set"},
		{removed.labels, "label%s removed"},
		{set.taints, "taint%s set"},
		{removed.taints, "taint%s removed"},
		{set.ids, "provider id%s set"},
	} {
		if c.count > 0 {
			plural := "s"
			if c.count == 1 {
				plural = ""
			}

			parts = append(parts, fmt.Sprintf("%d "+c.what, c.count, plural))
		}
	}

	if len(parts) == 0 {
		return "up to date"
	}

	return strings.Join(parts, ", ")
}
