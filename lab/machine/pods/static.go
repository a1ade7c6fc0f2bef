package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// System is the namespace of Kubernetes' own pods.
const System = metav1.NamespaceSystem

// Container is a running container of a pod, as the container runtime lists it.
type Container struct{ Namespace, Pod, Name, Image string }

// StaticStatus returns the kubelet's status, as JSON, of a static pod that runs since the node booted.
func StaticStatus(c Container, address string, booted time.Time, ready bool) map[string]any {
	started := metav1.NewTime(booted).Rfc3339Copy()

	status, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.PodStatus{ // always converts
		Phase: corev1.PodRunning, HostIP: address, PodIP: address, StartTime: &started,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: ConditionStatus(ready), LastTransitionTime: started},
			{Type: corev1.ContainersReady, Status: ConditionStatus(ready), LastTransitionTime: started},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: c.Name, Image: c.Image, Ready: ready,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		}},
	})

	return status
}
