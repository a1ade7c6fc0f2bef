package talos

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// Marks are the labels, taints and provider ID that a machine configuration sets on its Kubernetes node.
type Marks struct {
	Labels     map[string]string
	Taints     []Taint // by key
	ProviderID string
}

// Topology labels. A kubelet may set them on its own node (k8s.io/kubelet/pkg/apis).
const (
	regionLabel = "topology.kubernetes.io/region"
	zoneLabel   = "topology.kubernetes.io/zone"
)

// Taint of a Kubernetes node.
type Taint struct {
	Key    string `json:"key"              yaml:"key"`
	Value  string `json:"value,omitempty"  yaml:"value,omitempty"`
	Effect string `json:"effect"           yaml:"effect"`
}

// parseTaint reads a taint as Talos writes it: value:Effect, or Effect.
func parseTaint(key, text string) Taint {
	value, effect, found := strings.Cut(text, ":")
	if !found {
		value, effect = "", text
	}

	return Taint{Key: key, Value: value, Effect: effect}
}

// taintsByKey returns the node's taints by key, as Talos writes them; the user's override those of its GPUs.
func taintsByKey(n NodeConfig) map[string]string {
	taints := map[string]string{}
	if n.GPUs != nil && n.GPUs.Dedicated {
		taints[gpuTaint] = gpuEffect
	}

	maps.Copy(taints, n.Taints)

	return taints
}

// labelsWithoutGPUs returns the topology and the user's labels; GPU labels have their own patch.
func labelsWithoutGPUs(n NodeConfig) map[string]string {
	labels := map[string]string{}
	if n.Region != "" {
		labels[regionLabel], labels[zoneLabel] = n.Region, n.Zone
	}

	maps.Copy(labels, n.Labels)

	return labels
}

func sortedTaints(taints map[string]string) []Taint {
	list := make([]Taint, 0, len(taints))
	for _, key := range slices.Sorted(maps.Keys(taints)) {
		list = append(list, parseTaint(key, taints[key]))
	}

	return list
}

// marksPatch returns the patch with a node's labels, taints and provider ID. The kubelet registers the node with its
// taints, before any pod can be scheduled there. On control planes Talos also manages them. On workers it cannot: it
// has the kubelet's permissions there, NodeRestriction lets no kubelet change taints, and the rejected update would
// lose the labels in it too. The kubelet sets its provider ID only at registration.
func marksPatch(n NodeConfig) object {
	machine, kubelet := object{}, object{}
	if labels := labelsWithoutGPUs(n); len(labels) > 0 {
		machine["nodeLabels"] = labels
	}

	if n.ProviderID != "" {
		kubelet["extraArgs"] = object{"provider-id": n.ProviderID}
		machine["kubelet"] = kubelet
	}

	if taints := taintsByKey(n); len(taints) > 0 {
		kubelet["extraConfig"] = object{"registerWithTaints": sortedTaints(taints)}
		machine["kubelet"] = kubelet

		if n.Role == RoleControlPlane {
			machine["nodeTaints"] = taints
		}
	}

	return machine
}

// markFields matches patches that may change marks; applying every patch would cost more than the rest of the plan.
var markFields = regexp.MustCompile(`nodeLabels|nodeTaints|registerWithTaints`)

// MarksOf returns the marks that a node's configuration sets after the user's patches.
func MarksOf(c ClusterConfig, n NodeConfig) (Marks, error) {
	marks := Marks{
		Labels: union(gpuLabels(n), labelsWithoutGPUs(n)), Taints: sortedTaints(taintsByKey(n)), ProviderID: n.ProviderID,
	}

	var userPatches []string

	for _, text := range slices.Concat(c.Patches, n.Patches) {
		documents, err := SplitPatch(text)
		if err != nil {
			return Marks{}, err
		}

		for _, document := range documents {
			if markFields.MatchString(document) {
				userPatches = append(userPatches, document)
			}
		}
	}

	if len(userPatches) == 0 {
		return marks, nil
	}

	programPatches, err := encode([]object{
		{"version": "v1alpha1", "machine": object{"type": n.Role}, "cluster": object{}},
		{"machine": object{"nodeLabels": marks.Labels}},
		{"machine": marksPatch(n)},
	})
	if err != nil {
		return Marks{}, err
	}

	patches, err := configpatcher.LoadPatches(slices.Concat(programPatches[1:], userPatches))
	if err != nil {
		return Marks{}, err
	}

	patched, err := configpatcher.Apply(configpatcher.WithBytes([]byte(programPatches[0])), patches)
	if err != nil {
		return Marks{}, err
	}

	configuration, err := patched.Config()
	if err != nil {
		return Marks{}, err
	}

	patchedMarks, err := marksOfMachine(configuration.RawV1Alpha1().MachineConfig)
	patchedMarks.ProviderID = n.ProviderID

	return patchedMarks, err
}

// marksOfMachine rejects taints that would cost a worker its labels, see [marksPatch].
func marksOfMachine(machine *v1alpha1.MachineConfig) (Marks, error) {
	marks := Marks{Labels: machine.MachineNodeLabels, Taints: sortedTaints(machine.MachineNodeTaints)}
	if machine.Type().IsControlPlane() {
		return marks, nil
	}

	if len(marks.Taints) > 0 {
		return Marks{}, errors.New(
			"machine.nodeTaints: Kubernetes lets no worker change its taints, and the node would lose its labels with them: " +
				"set the pool's taints, or machine.kubelet.extraConfig.registerWithTaints",
		)
	}

	var registerWithTaints []any
	if machine.MachineKubelet != nil {
		registerWithTaints, _ = machine.MachineKubelet.ExtraConfig()["registerWithTaints"].([]any)
	}

	for i, entry := range registerWithTaints {
		fields, _ := entry.(map[string]any)
		text := func(field string) string {
			value, _ := fields[field].(string)

			return value
		}

		taint := Taint{Key: text("key"), Value: text("value"), Effect: text("effect")}
		if taint.Key == "" || taint.Effect == "" {
			return Marks{}, fmt.Errorf(
				"machine.kubelet.extraConfig.registerWithTaints[%d]: is not a taint: set its key, effect and, if any, value", i,
			)
		}

		marks.Taints = append(marks.Taints, taint)
	}

	slices.SortFunc(
		marks.Taints, func(a, b Taint) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect)) },
	)

	return marks, nil
}
