// Package nodes computes what Talos and the kubelet do to a Node object: labels, annotations, taints and the cordon,
// and what the API server refuses.
package nodes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/kubelet"
	talosLabels "github.com/siderolabs/talos/pkg/machinery/labels"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/kernel"
)

// RegistrationProviderID returns the provider id with which the kubelet registers a new node; it does not update an
// existing one (k8s.io/kubernetes pkg/kubelet/kubelet_node_status.go, initialNode).
func RegistrationProviderID(cfg config.Config) string {
	values := cfg.K8sKubeletConfig().ExtraArgs()["provider-id"]
	if len(values) == 0 {
		return ""
	}

	return values[len(values)-1] // the last of repeated flags takes effect
}

// uninitialized is the taint of a node that waits for the cloud controller manager.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// RegistrationTaints returns the taints with which the kubelet registers its node: those of its own configuration, and
// of those that Talos wants all if the release does so, else only the control plane's, so that no pod is scheduled
// before Talos sets it.
func RegistrationTaints(cfg config.Config, release talos.Release) ([]corev1.Taint, error) {
	extra := cfg.K8sKubeletConfig().ExtraConfig()

	for _, field := range kubelet.ProtectedConfigurationFields {
		if _, set := extra[field]; set {
			return nil, fmt.Errorf("error creating kubelet configuration: field %q can't be overridden", field)
		}
	}

	var configuration kubeletconfig.KubeletConfiguration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(
		extra, &configuration, true,
	); err != nil {
		return nil, fmt.Errorf(
			"error creating kubelet configuration: error unmarshalling extra kubelet configuration: %w", err,
		)
	}

	taints := slices.Clone(configuration.RegisterWithTaints)

	for _, wanted := range desiredTaints(cfg) {
		controlPlane := cfg.Machine().Type().IsControlPlane() && wanted.Key == constants.LabelNodeRoleControlPlane
		set := slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == wanted.Key })

		if !set && (controlPlane || release.RegistersTaints) {
			taints = append(taints, wanted)
		}
	}

	if cfg.Cluster().ExternalCloudProvider().Enabled() {
		taints = append(taints, corev1.Taint{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}

	return taints, nil
}

// Desired is the state that Talos wants for its node.
type Desired struct {
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
	// Cordoned is set while the machine shuts down.
	Cordoned bool
}

// NewDesired returns the state for a configuration and the system's extensions.
func NewDesired(cfg config.Config, extensions []kernel.Extension, cordoned bool) Desired {
	return Desired{
		Labels: labels(cfg, extensions), Annotations: cfg.K8sNodeConfig().Annotations(), Taints: desiredTaints(cfg),
		Cordoned: cordoned,
	}
}

func labels(cfg config.Config, extensions []kernel.Extension) map[string]string {
	wanted := maps.Clone(cfg.K8sNodeConfig().Labels())
	if wanted == nil {
		wanted = map[string]string{}
	}

	for _, e := range extensions {
		wanted[constants.K8sExtensionPrefix+e.Name] = e.Version
	}

	return wanted
}

// desiredTaints returns the taints that Talos wants, one per key.
func desiredTaints(cfg config.Config) []corev1.Taint {
	wanted := cfg.K8sNodeConfig().Taints()
	list := make([]corev1.Taint, 0, len(wanted))

	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		value, effect := talosLabels.ParseTaint(wanted[key])
		list = append(list, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}

	return list
}

// Apply applies the desired state to a node, and reports whether that changes it. Talos takes ownership of what is
// missing or has the desired value already, removes what it owns and no longer wants, and leaves everything else.
func (w Desired) Apply(n *corev1.Node) (changed bool) {
	before := n.DeepCopy()
	n.Labels, n.Annotations = cloneMap(n.Labels), cloneMap(n.Annotations)

	ownLabels := owned(n.Annotations, constants.AnnotationOwnedLabels)
	ownAnnotations := owned(n.Annotations, constants.AnnotationOwnedAnnotations)
	ownTaints := owned(n.Annotations, constants.AnnotationOwnedTaints)

	reconcile(n.Labels, ownLabels, w.Labels)
	reconcile(n.Annotations, ownAnnotations, w.Annotations)
	n.Spec.Taints = reconcileTaints(slices.Clone(n.Spec.Taints), ownTaints, w.Taints)

	cordon(n, w.Cordoned)

	setOwned(n.Annotations, constants.AnnotationOwnedLabels, ownLabels)
	setOwned(n.Annotations, constants.AnnotationOwnedAnnotations, ownAnnotations)
	setOwned(n.Annotations, constants.AnnotationOwnedTaints, ownTaints)

	return !equality.Semantic.DeepEqual(before, n)
}

// cordon cordons the node of a machine that shuts down. Talos uncordons only nodes with its annotation.
func cordon(n *corev1.Node, wanted bool) {
	_, ours := n.Annotations[constants.AnnotationCordonedKey]

	switch {
	case wanted && !n.Spec.Unschedulable:
		n.Spec.Unschedulable = true
		n.Annotations[constants.AnnotationCordonedKey] = constants.AnnotationCordonedValue
	case !wanted && n.Spec.Unschedulable && ours:
		n.Spec.Unschedulable = false
		delete(n.Annotations, constants.AnnotationCordonedKey)
	}
}

// Refusal returns why the NodeRestriction admission plugin refuses a change of a worker's Node by its machine; empty if
// it accepts. On workers Talos has the kubelet's identity, which cannot change taints after registration, nor labels of
// kubernetes.io and k8s.io except those for kubelets.
func Refusal(before, after *corev1.Node) string {
	forbidden := fmt.Sprintf("nodes %q is forbidden: ", after.Name)

	if !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) {
		return forbidden + fmt.Sprintf("node %q is not allowed to modify taints", after.Name)
	}

	var changed []string

	both := cloneMap(before.Labels)
	maps.Copy(both, after.Labels)

	for key := range both {
		old, was := before.Labels[key]
		now, is := after.Labels[key]

		if (was != is || old != now) && restrictedLabel(key) {
			changed = append(changed, key)
		}
	}

	if len(changed) > 0 {
		slices.Sort(changed)

		return forbidden + "is not allowed to modify labels: " + strings.Join(changed, ", ")
	}

	return ""
}

// restrictedLabel reports whether NodeRestriction forbids kubelets to change a label.
func restrictedLabel(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	within := func(domain string) bool { return found && (prefix == domain || strings.HasSuffix(prefix, "."+domain)) }

	return within(corev1.LabelNamespaceNodeRestriction) ||
		(within("kubernetes.io") || within("k8s.io")) && !kubeletapis.IsKubeletLabel(key)
}

// owned returns the keys that Talos owns according to an annotation of the node.
func owned(annotations map[string]string, key string) map[string]bool {
	var list []string

	_ = json.Unmarshal([]byte(annotations[key]), &list) // written only by Talos

	set := map[string]bool{}
	for _, name := range list {
		set[name] = true
	}

	return set
}

func setOwned(annotations map[string]string, key string, set map[string]bool) {
	if len(set) == 0 {
		delete(annotations, key)

		return
	}

	text, _ := json.Marshal(slices.Sorted(maps.Keys(set))) // names always encode
	annotations[key] = string(text)
}

// reconcile sets the desired values except those that others own, and removes owned ones that are no longer desired.
func reconcile(values map[string]string, own map[string]bool, wanted map[string]string) {
	for key, value := range wanted {
		have, exists := values[key]
		if exists && have != value && !own[key] {
			continue
		}

		values[key], own[key] = value, true
	}

	for key := range own {
		if _, stays := wanted[key]; !stays {
			delete(values, key)
			delete(own, key)
		}
	}
}

// reconcileTaints is reconcile for taints, which Talos identifies by their key.
func reconcileTaints(taints []corev1.Taint, own map[string]bool, wanted []corev1.Taint) []corev1.Taint {
	byKey := func(key string) func(corev1.Taint) bool { return func(t corev1.Taint) bool { return t.Key == key } }

	for _, t := range wanted {
		i := slices.IndexFunc(taints, byKey(t.Key))

		switch {
		case i < 0:
			taints = append(taints, t)
		case taints[i].Value == t.Value && taints[i].Effect == t.Effect: // keeps the time when it was added
		case !own[t.Key]:
			continue
		default:
			taints[i] = t
		}

		own[t.Key] = true
	}

	return slices.DeleteFunc(taints, func(t corev1.Taint) bool {
		gone := own[t.Key] && !slices.ContainsFunc(wanted, byKey(t.Key))
		if gone {
			delete(own, t.Key)
		}

		return gone
	})
}

func cloneMap(values map[string]string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, values)

	return result
}
