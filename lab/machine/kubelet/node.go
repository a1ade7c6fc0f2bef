package kubelet

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/machine/nodes"
)

// equalStatus compares statuses without their heartbeat times.
func equalStatus(a, b *corev1.NodeStatus) bool {
	withoutHeartbeats := func(s *corev1.NodeStatus) *corev1.NodeStatus {
		s = s.DeepCopy()
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}

		return s
	}

	return equality.Semantic.DeepEqual(withoutHeartbeats(a), withoutHeartbeats(b))
}

// setNodeStatus sets the node status that the kubelet reports for its machine.
func (r *session) setNodeStatus(s *corev1.NodeStatus, m nodes.Machine) {
	m.Describe(s)
	nodes.SetDeviceResources(s, r.k.deviceResources())

	s.DaemonEndpoints.KubeletEndpoint.Port = constants.KubeletPort

	for _, pressure := range []corev1.NodeConditionType{
		corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure,
	} {
		nodes.SetCondition(s, corev1.NodeCondition{
			Type: pressure, Status: corev1.ConditionFalse,
			Reason: "KubeletHasSufficient" + string(pressure[:len(pressure)-len("Pressure")]),
		})
	}

	nodes.SetReady(s, r.k.networkReady())
}

// applyNode applies the labels, annotations and taints that Talos wants to the node.
func (r *session) applyNode(ctx context.Context, n *corev1.Node, wanted nodes.Desired) error {
	refusal := ""

	if wanted.Apply(n) {
		_, err := r.Talos.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return ignoreConflict(err)
		}

		if err != nil {
			refusal = err.Error()
		}
	}

	r.k.m.NodeApplied(refusal)

	return nil
}
