package kubelet

import (
	"context"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/machine/pods"
)

// sameStatus compares all that a kubelet says but when it said so.
func sameStatus(a, b *corev1.NodeStatus) bool {
	plain := func(s *corev1.NodeStatus) *corev1.NodeStatus {
		s = s.DeepCopy()
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}

		return s
	}

	return equality.Semantic.DeepEqual(plain(a), plain(b))
}

// describe fills in what the kubelet says of its machine.
func (r *link) describe(n *corev1.Node) {
	s := &n.Status
	if !r.k.m.Describe(s) {
		return
	}

	for name, count := range r.k.offers() {
		s.Capacity[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}

	s.Allocatable = s.Capacity
	s.DaemonEndpoints.KubeletEndpoint.Port = constants.KubeletPort

	for _, pressure := range []corev1.NodeConditionType{
		corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure,
	} {
		setCondition(s, corev1.NodeCondition{
			Type: pressure, Status: corev1.ConditionFalse,
			Reason: "KubeletHasSufficient" + string(pressure[:len(pressure)-len("Pressure")]),
		})
	}

	if r.k.networkReady() {
		setCondition(s, corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "kubelet is posting ready status",
		})
	} else {
		setCondition(s, corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse,
			Reason: "KubeletNotReady", Message: pods.NoCNI,
		})
	}
}

func setCondition(s *corev1.NodeStatus, c corev1.NodeCondition) {
	c.LastHeartbeatTime = metav1.Now()
	c.LastTransitionTime = c.LastHeartbeatTime

	i := slices.IndexFunc(s.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)

		return
	}

	if s.Conditions[i].Status == c.Status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}

	s.Conditions[i] = c
}

// applyNode lets Talos make labels, annotations and taints of the node those of its configuration.
func (r *link) applyNode(ctx context.Context, n *corev1.Node) error {
	refusal := ""

	if r.k.m.Want(n) {
		_, err := r.talos.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return ignoreConflict(err)
		}

		if err != nil {
			refusal = err.Error()
		}
	}

	r.k.m.Applied(refusal)

	return nil
}
