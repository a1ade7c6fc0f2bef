package kubelet

import (
	"context"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// syncMirrorPods creates a mirror pod for each static pod of a control plane, and replaces outdated ones.
func (r *session) syncMirrorPods(ctx context.Context, node *corev1.Node) error {
	var wanted []*corev1.Pod

	for _, pod := range r.k.m.StaticPods() {
		wanted = append(wanted, newMirrorPod(pod, node))
	}

	for _, p := range wanted {
		if existing := r.findMirrorPod(p.Name); existing != nil {
			if existing.Annotations[corev1.MirrorPodAnnotationKey] == p.Annotations[corev1.MirrorPodAnnotationKey] {
				continue
			}

			if err := r.deletePod(ctx, p, nil); err != nil {
				return err
			}
		}

		_, err := r.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}

	return nil
}

// findMirrorPod returns the node's mirror pod with a name.
func (r *session) findMirrorPod(name string) *corev1.Pod {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()

	for _, p := range r.k.pods {
		if p.pod.Name == name && p.pod.Namespace == metav1.NamespaceSystem && p.pod.DeletionTimestamp == nil {
			return p.pod
		}
	}

	return nil
}

// newMirrorPod returns the mirror of a static pod. Its hash depends on the pod's image, settings and certificates.
func newMirrorPod(pod StaticPod, node *corev1.Node) *corev1.Pod {
	hash := strings.NewReplacer("/", "-", ":", "-", "@", "-").Replace(pod.Image + "-" + pod.Version + "-" + pod.Secrets)
	controller, grace := true, int64(30)

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name + "-" + node.Name, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"k8s-app": pod.Name, "tier": "control-plane", "component": pod.Name},
			Annotations: map[string]string{
				"kubernetes.io/config.source": "file", corev1.MirrorPodAnnotationKey: hash,
				"kubernetes.io/config.hash": hash, constants.AnnotationStaticPodConfigVersion: pod.Version,
				constants.AnnotationStaticPodSecretsVersion: pod.Secrets,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
				Controller: &controller,
			}},
		},
		Spec: corev1.PodSpec{
			NodeName: node.Name, HostNetwork: true, PriorityClassName: "system-cluster-critical",
			TerminationGracePeriodSeconds: &grace,
			Tolerations: []corev1.Toleration{{
				Operator: corev1.TolerationOpExists,
				Effect:   corev1.TaintEffectNoExecute,
			}},
			Containers: []corev1.Container{{Name: pod.Name, Image: pod.Image}},
		},
	}
}
