package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/kubelet"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// uninitialized is the taint of a node that waits for the cloud controller manager.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// registrationTaints are what the kubelet registers its node with: those of its configuration, and the control plane's,
// so that no pod is faster than Talos.
func (m *machine) registrationTaints() ([]corev1.Taint, error) {
	extra := m.config.Machine().Kubelet().ExtraConfig()

	for _, field := range kubelet.ProtectedConfigurationFields {
		if _, stated := extra[field]; stated {
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

	controlPlane := func(t corev1.Taint) bool { return t.Key == constants.LabelNodeRoleControlPlane }
	if m.isControlPlane() && !m.config.Cluster().ScheduleOnControlPlanes() && !slices.ContainsFunc(taints, controlPlane) {
		taints = append(taints, corev1.Taint{Key: constants.LabelNodeRoleControlPlane, Effect: corev1.TaintEffectNoSchedule})
	}

	if m.config.Cluster().ExternalCloudProvider().Enabled() {
		taints = append(taints, corev1.Taint{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}

	return taints, nil
}

// kubeletLabels are what the kubelet says of its machine, at registration and at every later start.
func (m *machine) kubeletLabels() map[string]string {
	return map[string]string{
		"kubernetes.io/hostname": m.hostname, "kubernetes.io/os": "linux", "kubernetes.io/arch": m.system.Arch,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": m.system.Arch,
	}
}

// talosLabels are those that Talos wants its node to have.
func (m *machine) talosLabels() map[string]string {
	labels := maps.Clone(m.config.Machine().NodeLabels())
	if labels == nil {
		labels = map[string]string{}
	}

	if m.isControlPlane() {
		labels[constants.LabelNodeRoleControlPlane] = ""
	}

	for _, e := range m.extensions {
		labels[constants.K8sExtensionPrefix+e.Name] = e.Version
	}

	return labels
}

// talosTaints are those that Talos wants its node to have, by key: one for each.
func (m *machine) talosTaints() []corev1.Taint {
	taints := map[string]corev1.Taint{}

	if m.isControlPlane() && !m.config.Cluster().ScheduleOnControlPlanes() {
		taints[constants.LabelNodeRoleControlPlane] = corev1.Taint{
			Key: constants.LabelNodeRoleControlPlane, Effect: corev1.TaintEffectNoSchedule,
		}
	}

	for key, text := range m.config.Machine().NodeTaints() {
		value, effect, found := strings.Cut(text, ":")
		if !found {
			value, effect = "", text
		}

		taints[key] = corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	}

	list := make([]corev1.Taint, 0, len(taints))
	for _, key := range slices.Sorted(maps.Keys(taints)) {
		list = append(list, taints[key])
	}

	return list
}

// applyNode makes labels, annotations and taints of the Node object those of the machine's configuration, as Talos
// does: all in one update, so that a refusal loses all of them, and again at every change of the two. Talos takes over
// what is not there yet or has its value already, and removes what it owns; anything else it leaves. The caller holds
// the lock.
func (m *machine) applyNode(e *etcd) {
	current := e.nodes[m.hostname]
	if current == nil || m.config == nil {
		return
	}

	next := m.wantedNode(current)
	if sameNode(current, &next) {
		m.kubelet.refused = ""

		return
	}

	if refusal := m.refusedOf(current, &next); refusal != "" {
		m.refuseNode(refusal)

		return
	}

	m.kubelet.refused = ""

	e.store(&next)
}

// refuseNode tells once why the API server does not take a change of the node, which Talos tries again and again; the
// caller holds the lock.
func (m *machine) refuseNode(message string) {
	if m.kubelet.refused != message {
		m.kubelet.refused = message
		m.logf("[talos] controller failed {\"controller\": \"k8s.NodeApplyController\", \"error\": \"%d error(s) occurred:\\n\\ttimeout\\n\\t%s\"}", 2, message)
	}
}

// sameNode says whether two states of a node differ in nothing that Talos applies.
func sameNode(a, b *kubeNode) bool {
	return a.Unschedulable == b.Unschedulable && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(a.Taints, b.Taints)
}

// wantedNode is the node as Talos wants it; the caller holds the lock.
func (m *machine) wantedNode(current *kubeNode) kubeNode {
	next := *current
	next.Labels, next.Annotations, next.Taints = extended(current.Labels, nil), extended(
		current.Annotations, nil,
	), slices.Clone(current.Taints)

	labels := owned(next.Annotations, constants.AnnotationOwnedLabels)
	annotations := owned(next.Annotations, constants.AnnotationOwnedAnnotations)
	taints := owned(next.Annotations, constants.AnnotationOwnedTaints)

	takeOver(next.Labels, labels, m.talosLabels())
	takeOver(next.Annotations, annotations, m.config.Machine().NodeAnnotations())
	next.Taints = takeOverTaints(next.Taints, taints, m.talosTaints())

	m.cordon(&next)

	remember(next.Annotations, constants.AnnotationOwnedLabels, labels)
	remember(next.Annotations, constants.AnnotationOwnedAnnotations, annotations)
	remember(next.Annotations, constants.AnnotationOwnedTaints, taints)

	return next
}

// cordon marks a node of a machine that goes down; Talos lifts its own cordon only, which has its annotation.
func (m *machine) cordon(next *kubeNode) {
	_, ours := next.Annotations[constants.AnnotationCordonedKey]

	switch {
	case m.cordoned && !next.Unschedulable:
		next.Unschedulable = true
		next.Annotations[constants.AnnotationCordonedKey] = constants.AnnotationCordonedValue
	case !m.cordoned && next.Unschedulable && ours:
		next.Unschedulable = false
		delete(next.Annotations, constants.AnnotationCordonedKey)
	}
}

// refusedOf judges a change of the machine's Node as the NodeRestriction admission plugin does: on workers Talos has
// the kubelet's identity, which taints its node at registration and never afterwards, and touches no labels of
// kubernetes.io and k8s.io but those meant for it.
func (m *machine) refusedOf(before, after *kubeNode) string {
	if m.isControlPlane() { // where Talos is the cluster's administrator
		return ""
	}

	forbidden := fmt.Sprintf("nodes %q is forbidden: ", after.Name)

	if !equality.Semantic.DeepEqual(before.Taints, after.Taints) {
		return forbidden + fmt.Sprintf("node %q is not allowed to modify taints", after.Name)
	}

	changed := map[string]bool{}

	for key := range extended(before.Labels, after.Labels) {
		old, was := before.Labels[key]
		now, is := after.Labels[key]
		changed[key] = (was != is || old != now) && restrictedLabel(key)
	}

	maps.DeleteFunc(changed, func(_ string, is bool) bool { return !is })

	if len(changed) > 0 {
		return forbidden + "is not allowed to modify labels: " + strings.Join(slices.Sorted(maps.Keys(changed)), ", ")
	}

	return ""
}

// restrictedLabel says whether NodeRestriction keeps a label from kubelets.
func restrictedLabel(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	within := func(domain string) bool { return found && (prefix == domain || strings.HasSuffix(prefix, "."+domain)) }

	return within(corev1.LabelNamespaceNodeRestriction) ||
		(within("kubernetes.io") || within("k8s.io")) && !kubeletapis.IsKubeletLabel(key)
}

// store keeps a Node; the caller holds the lock.
func (e *etcd) store(n *kubeNode) {
	e.committed(false)
	n.Revision = e.revision
	e.nodes[n.Name] = n
}

// owned reads what Talos has noted as its own in an annotation of the node.
func owned(annotations map[string]string, key string) map[string]bool {
	var list []string

	_ = json.Unmarshal([]byte(annotations[key]), &list) // only Talos writes it

	set := map[string]bool{}
	for _, name := range list {
		set[name] = true
	}

	return set
}

func remember(annotations map[string]string, key string, set map[string]bool) {
	if len(set) == 0 {
		delete(annotations, key)

		return
	}

	annotations[key] = string(mustJSON(slices.Sorted(maps.Keys(set))))
}

// takeOver sets the wanted values but those that are someone else's, and removes the owned ones that are not wanted
// any more.
func takeOver(values map[string]string, own map[string]bool, wanted map[string]string) {
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

// takeOverTaints does the same for taints, which Talos knows by their key.
func takeOverTaints(taints []corev1.Taint, own map[string]bool, wanted []corev1.Taint) []corev1.Taint {
	byKey := func(key string) func(corev1.Taint) bool { return func(t corev1.Taint) bool { return t.Key == key } }

	for _, t := range wanted {
		i := slices.IndexFunc(taints, byKey(t.Key))

		switch {
		case i < 0:
			taints = append(taints, t)
		case taints[i].Value == t.Value && taints[i].Effect == t.Effect: // it keeps the time at which it was added
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
