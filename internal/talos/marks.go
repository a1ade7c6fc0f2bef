package talos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
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

// managedTaints returns the taints that Talos itself manages on a node. On workers it cannot: it has the kubelet's
// permissions there, NodeRestriction lets no kubelet change taints, and the rejected update would lose the labels in it
// too.
func managedTaints(n NodeConfig) map[string]string {
	if n.Role != RoleControlPlane {
		return nil
	}

	return taintsByKey(n)
}

// kubeletMarks returns the kubelet's arguments and configuration (below key) that mark its node. The kubelet registers
// the node with its taints, before any pod can be scheduled there, and sets its provider ID only then.
func kubeletMarks(n NodeConfig, key string) object {
	kubelet := object{}
	if n.ProviderID != "" {
		kubelet["extraArgs"] = object{"provider-id": n.ProviderID}
	}

	if taints := taintsByKey(n); len(taints) > 0 {
		kubelet[key] = object{"registerWithTaints": sortedTaints(taints)}
	}

	return kubelet
}

// marksOf returns the marks that patches added to a generated configuration, of the program or the user. It rejects
// those that would cost a worker its labels, see [managedTaints].
func marksOf(generated, configuration config.Provider) (Marks, error) {
	before, node, kubelet := generated.K8sNodeConfig(), configuration.K8sNodeConfig(), configuration.K8sKubeletConfig()
	marks := Marks{
		Labels: added(before.Labels(), node.Labels()), Taints: sortedTaints(added(before.Taints(), node.Taints())),
		ProviderID: strings.Join(kubelet.ExtraArgs()["provider-id"], ""),
	}

	if configuration.Machine().Type().IsControlPlane() {
		return marks, nil
	}

	inNode, inKubelet := "machine.nodeTaints", "machine.kubelet.extraConfig.registerWithTaints"
	if generated.RawV1Alpha1().MachineConfig.MachineKubelet == nil {
		inNode = "KubeNodeConfig: taints"
	}

	if configuration.RawV1Alpha1().MachineConfig.MachineKubelet == nil {
		inKubelet = "KubeletConfig: config.registerWithTaints"
	}

	if len(marks.Taints) > 0 {
		return Marks{}, fmt.Errorf("%s: Kubernetes lets no worker change its taints, and the node would lose its labels with them: "+
			"set the pool's taints, or %s", inNode, inKubelet)
	}

	for _, label := range slices.Sorted(maps.Keys(marks.Labels)) {
		if RestrictedLabel(label) {
			return Marks{}, fmt.Errorf("%s: Kubernetes lets no worker give itself this label, and the node would lose its other labels with it: "+
				"use your own prefix, such as example.org/, or set it with kubectl", label)
		}
	}

	registered, _ := kubelet.ExtraConfig()["registerWithTaints"].([]any)
	for i, entry := range registered {
		fields, _ := entry.(map[string]any)
		text := func(field string) string {
			value, _ := fields[field].(string)

			return value
		}

		taint := Taint{Key: text("key"), Value: text("value"), Effect: text("effect")}
		if taint.Key == "" || taint.Effect == "" {
			return Marks{}, fmt.Errorf("%s[%d]: is not a taint: set its key, effect and, if any, value", inKubelet, i)
		}

		marks.Taints = append(marks.Taints, taint)
	}

	slices.SortFunc(
		marks.Taints, func(a, b Taint) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect)) },
	)

	return marks, nil
}

// added returns the entries of after that before does not have.
func added(before, after map[string]string) map[string]string {
	found := map[string]string{}

	for key, value := range after {
		if former, had := before[key]; !had || former != value {
			found[key] = value
		}
	}

	return found
}

// RestrictedLabel reports whether Kubernetes' NodeRestriction admission plugin rejects a label that a worker's kubelet
// sets. Talos sets all labels of a worker in one update, with the kubelet's permissions: one such label would cost the
// others (k8s.io/kubernetes plugin/pkg/admission/noderestriction, k8s.io/kubelet/pkg/apis).
func RestrictedLabel(key string) bool {
	prefix, _, found := strings.Cut(key, "/")

	inDomain := func(domains ...string) bool {
		return slices.ContainsFunc(
			domains, func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) },
		)
	}
	if !found || !inDomain("kubernetes.io", "k8s.io") || inDomain("kubelet.kubernetes.io", "node.kubernetes.io") {
		return false
	}

	return !slices.Contains([]string{
		"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone",
		"beta.kubernetes.io/instance-type", "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}, key)
}
