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

// Marks are the labels and taints that a machine configuration gives its Kubernetes node, and its provider id.
type Marks struct {
	Labels     map[string]string
	Taints     []Taint // by key
	ProviderID string
}

// Labels of a node's topology. Every kubelet may set those of its own node (k8s.io/kubelet/pkg/apis).
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

// parseTaint reads Talos' form of a taint: value:Effect, or Effect.
func parseTaint(key, text string) Taint {
	value, effect, found := strings.Cut(text, ":")
	if !found {
		value, effect = "", text
	}

	return Taint{Key: key, Value: value, Effect: effect}
}

// taintsOf are the node's taints by key in Talos' form; the user's come after those of its GPUs.
func taintsOf(n NodeConfig) map[string]string {
	taints := map[string]string{}
	if n.GPUs != nil && n.GPUs.Dedicated {
		taints[gpuTaint] = gpuEffect
	}

	maps.Copy(taints, n.Taints)

	return taints
}

func labelsOf(n NodeConfig) map[string]string {
	labels := map[string]string{}
	if n.GPUs != nil {
		labels[gpuLabel], labels[pluginLabel] = "true", pluginConfig(n.GPUs.TimeSlicing)
	}

	maps.Copy(labels, ownLabels(n))

	return labels
}

// ownLabels are the node's topology and what is stated; labels of GPUs have patches of their own.
func ownLabels(n NodeConfig) map[string]string {
	labels := map[string]string{}
	if n.Region != "" {
		labels[regionLabel], labels[zoneLabel] = n.Region, n.Zone
	}

	maps.Copy(labels, n.Labels)

	return labels
}

func taintList(taints map[string]string) []Taint {
	list := make([]Taint, 0, len(taints))
	for _, key := range slices.Sorted(maps.Keys(taints)) {
		list = append(list, parseTaint(key, taints[key]))
	}

	return list
}

// nodeMarks is the patch with a node's own labels and its taints. The kubelet registers the node with the taints,
// before any pod can be placed on it. On control planes Talos then owns them. On workers it may not: it has the
// kubelet's rights there, Kubernetes' NodeRestriction lets no kubelet change taints, and the node would lose its labels
// with them, which are in the same update. The kubelet states its provider id when it registers the node, and never
// later.
func nodeMarks(n NodeConfig) object {
	machine, kubelet := object{}, object{}
	if labels := ownLabels(n); len(labels) > 0 {
		machine["nodeLabels"] = labels
	}

	if n.ProviderID != "" {
		kubelet["extraArgs"] = object{"provider-id": n.ProviderID}
		machine["kubelet"] = kubelet
	}

	if taints := taintsOf(n); len(taints) > 0 {
		kubelet["extraConfig"] = object{"registerWithTaints": taintList(taints)}
		machine["kubelet"] = kubelet

		if n.Role == RoleControlPlane {
			machine["nodeTaints"] = taints
		}
	}

	return machine
}

// marksForm finds patches that say something about marks; applying every patch would cost more than all else that is
// planned.
var marksForm = regexp.MustCompile(`nodeLabels|nodeTaints|registerWithTaints`)

// MarksOf returns the labels and taints of a node, as its configuration sets them after the user's patches.
func MarksOf(c ClusterConfig, n NodeConfig) (Marks, error) {
	marks := Marks{Labels: labelsOf(n), Taints: taintList(taintsOf(n)), ProviderID: n.ProviderID}

	var theirs []string

	for _, text := range slices.Concat(c.Patches, n.Patches) {
		documents, err := SplitPatch(text)
		if err != nil {
			return Marks{}, err
		}

		for _, document := range documents {
			if marksForm.MatchString(document) {
				theirs = append(theirs, document)
			}
		}
	}

	if len(theirs) == 0 {
		return marks, nil
	}

	own, err := encode([]object{
		{"version": "v1alpha1", "machine": object{"type": n.Role}, "cluster": object{}},
		{"machine": object{"nodeLabels": marks.Labels}},
		{"machine": nodeMarks(n)},
	})
	if err != nil {
		return Marks{}, err
	}

	patches, err := configpatcher.LoadPatches(slices.Concat(own[1:], theirs))
	if err != nil {
		return Marks{}, err
	}

	patched, err := configpatcher.Apply(configpatcher.WithBytes([]byte(own[0])), patches)
	if err != nil {
		return Marks{}, err
	}

	configuration, err := patched.Config()
	if err != nil {
		return Marks{}, err
	}

	patchedMarks, err := readMarks(configuration.RawV1Alpha1().MachineConfig)
	patchedMarks.ProviderID = n.ProviderID

	return patchedMarks, err
}

// readMarks refuses what would cost a worker its labels.
func readMarks(machine *v1alpha1.MachineConfig) (Marks, error) {
	marks := Marks{Labels: machine.MachineNodeLabels, Taints: taintList(machine.MachineNodeTaints)}
	if machine.Type().IsControlPlane() {
		return marks, nil
	}

	if len(marks.Taints) > 0 {
		return Marks{}, errors.New(
			"machine.nodeTaints: Kubernetes lets no worker change its taints, and the node would lose its labels with them: " +
				"state taints of the pool, or machine.kubelet.extraConfig.registerWithTaints",
		)
	}

	var registered []any
	if machine.MachineKubelet != nil {
		registered, _ = machine.MachineKubelet.ExtraConfig()["registerWithTaints"].([]any)
	}

	for i, entry := range registered {
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
