package machine

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"proxmox-talos/lab/machine/kube"
)

func labelSet(values map[string]string) labels.Set { return values }

// daemonPod is what a stored DaemonSet makes on a node: a pod, or the API server's refusal of one.
type daemonPod struct {
	set     *kubeObject
	spec    corev1.PodSpec
	labels  map[string]string
	node    *kubeNode
	started time.Time
	refusal string
	state   podState
}

// daemonTolerations are what the DaemonSet controller adds to every pod. A node without a CNI has not-ready:NoSchedule as well, which is not among them.
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// daemonPodsOn are the pods of the stored DaemonSets on a node; the caller holds the lock.
func (e *etcd) daemonPodsOn(node *kubeNode) []daemonPod {
	var pods []daemonPod

	for _, o := range e.stored("daemonsets") {
		var set appsv1.DaemonSet
		if recode(o.Content, &set) != nil || !e.placeable(set.Spec.Template.Spec, node) {
			continue
		}

		p := daemonPod{set: o, spec: set.Spec.Template.Spec, labels: set.Spec.Template.Labels, node: node, started: o.Created}
		if node.Created.After(p.started) {
			p.started = node.Created
		}

		if p.refusal = e.refusePod(o.Namespace, p.name(), p.spec); p.refusal == "" {
			p.state = e.runPod(p)
		}

		pods = append(pods, p)
	}

	return pods
}

// daemonPods are those of all nodes, in order of their nodes.
func (e *etcd) daemonPods() []daemonPod {
	nodes := make([]*kubeNode, 0, len(e.nodes))
	for _, n := range e.nodes {
		nodes = append(nodes, n)
	}

	slices.SortFunc(nodes, func(a, b *kubeNode) int { return cmp.Compare(a.Name, b.Name) })

	var pods []daemonPod
	for _, n := range nodes {
		pods = append(pods, e.daemonPodsOn(n)...)
	}

	return pods
}

// placeable says whether a DaemonSet's pod belongs on a node: by selector, affinity and taints.
func (e *etcd) placeable(spec corev1.PodSpec, node *kubeNode) bool {
	if spec.NodeName != "" && spec.NodeName != node.Name || !labelSet(spec.NodeSelector).AsSelector().Matches(labelSet(node.Labels)) {
		return false
	}

	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && !inTerms(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, node) {
		return false
	}

	tolerations := slices.Concat(daemonTolerations, spec.Tolerations)
	if spec.HostNetwork {
		tolerations = append(tolerations, corev1.Toleration{Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}

	for _, t := range e.taints(node) {
		taint := corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)}
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}

		if !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taint, false) }) {
			return false
		}
	}

	return true
}

// nodeOperators are the operators of node affinity as label selectors have them; Gt and Lt have no equal there and match nothing.
var nodeOperators = map[corev1.NodeSelectorOperator]metav1.LabelSelectorOperator{
	corev1.NodeSelectorOpIn: metav1.LabelSelectorOpIn, corev1.NodeSelectorOpNotIn: metav1.LabelSelectorOpNotIn,
	corev1.NodeSelectorOpExists: metav1.LabelSelectorOpExists, corev1.NodeSelectorOpDoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// inTerms says whether one of the terms matches the node's labels.
func inTerms(s *corev1.NodeSelector, node *kubeNode) bool {
	if s == nil {
		return true
	}

	return slices.ContainsFunc(s.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		var selector metav1.LabelSelector

		for _, r := range term.MatchExpressions {
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.Key, Operator: nodeOperators[r.Operator], Values: r.Values})
		}

		parsed, err := metav1.LabelSelectorAsSelector(&selector)

		return err == nil && len(term.MatchExpressions) > 0 && parsed.Matches(labelSet(node.Labels))
	})
}

// uid is the pod's: the same as long as its set and node are.
func (p daemonPod) uid() string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(p.set.UID+p.node.UID)).String()
}

func (p daemonPod) name() string { return p.set.Name + "-" + p.uid()[:5] }

// daemonSetObject is a stored DaemonSet with its status.
func (e *etcd) daemonSetObject(o *kubeObject, pods []daemonPod) kube.Object {
	status := kube.DaemonSetStatus{}

	for _, p := range pods {
		if p.set != o {
			continue
		}

		status.DesiredNumberScheduled++

		if p.refusal == "" {
			status.CurrentNumberScheduled++
			status.UpdatedNumberScheduled++
		}

		if p.state.running {
			status.NumberReady++
			status.NumberAvailable++
		}
	}

	shown := o.object(e.revision)
	shown.Status = status

	return shown
}
