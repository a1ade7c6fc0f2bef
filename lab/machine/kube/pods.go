package kube

import (
	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/nodes"
	"talos-proxmox/lab/machine/pods"
)

// daemonPod is the pod of a DaemonSet on a node.
type daemonPod struct {
	pods.Pod

	node  string
	state pods.State
}

// listPods returns the pods of DaemonSets on a node, or on all nodes if it is empty.
func (s *server) listPods(node string) []corev1.Pod {
	c, unlock := s.machine.Cluster()
	defer unlock()

	list := []corev1.Pod{}

	for _, n := range c.SortedNodes() {
		for _, p := range podsOf(c, n) {
			if node == "" || node == n.Name {
				list = append(list, p.object())
			}
		}
	}

	return list
}

// podsOf returns the pods of the DaemonSets whose nodeSelector matches the node.
func podsOf(c *etcd.Cluster, n *etcd.Node) []daemonPod {
	var list []daemonPod

	for _, o := range c.Objects("daemonsets") {
		var set appsv1.DaemonSet
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &set) != nil {
			continue
		}

		spec := set.Spec.Template.Spec
		if !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(n.Labels)) {
			continue
		}

		uid := uuid.NewSHA1(uuid.NameSpaceOID, []byte(set.UID+n.UID)).String()
		p := daemonPod{Pod: pods.Pod{
			Namespace: set.Namespace, Name: set.Name + "-" + uid[:5], UID: uid, Spec: spec, Objects: c.Object,
		}, node: n.Name}

		if c.IsPosting(n) {
			p.state = p.State(c.GPUs(n), nodes.Ready(&n.Status).Status == corev1.ConditionTrue)
		}

		list = append(list, p)
	}

	return list
}

// object returns the pod as the API shows it.
func (p daemonPod) object() corev1.Pod {
	p.Spec.NodeName = p.node
	o := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: types.UID(p.UID)},
		Spec:       p.Spec, Status: corev1.PodStatus{Phase: corev1.PodPending},
	}

	if p.state.Running {
		o.Status.Phase = corev1.PodRunning
	}

	for _, c := range p.Spec.Containers {
		s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: p.state.Running}
		if !s.Ready {
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: p.state.Reason, Message: p.state.Message}
		}

		o.Status.ContainerStatuses = append(o.Status.ContainerStatuses, s)
	}

	return o
}
