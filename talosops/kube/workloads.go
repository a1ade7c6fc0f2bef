package kube

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// CNINamespace has the CNI, and CoreDNS.
const CNINamespace = "kube-system"

// PodNetwork asks for what brings the network of pods.
func (k *Client) PodNetwork(ctx context.Context, address, release string) (PodNetwork, error) {
	released, err := askKubernetes(ctx, k, address, func(
		ctx context.Context, c serverClient,
	) (*corev1.SecretList, error) {
		return c.CoreV1().Secrets(CNINamespace).List(ctx, metav1.ListOptions{
			Limit: 1, LabelSelector: "owner=helm,status=deployed,name=" + release,
		})
	})
	if err != nil {
		return PodNetwork{}, err
	}

	agents, err := arrived(askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (Rollout, error) {
		set, err := c.AppsV1().DaemonSets(CNINamespace).Get(ctx, release, metav1.GetOptions{})
		s := set.Status

		return Rollout{
			There: true, Stale: s.ObservedGeneration < set.Generation, Wanted: int(s.DesiredNumberScheduled),
			Updated: int(s.UpdatedNumberScheduled), Ready: int(s.NumberReady),
		}, err
	}))
	if err != nil {
		return PodNetwork{}, err
	}

	dns, err := arrived(askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (Rollout, error) {
		deployment, err := c.AppsV1().Deployments(CNINamespace).Get(ctx, "coredns", metav1.GetOptions{})
		s := deployment.Status

		return Rollout{
			There: true, Stale: s.ObservedGeneration < deployment.Generation,
			Wanted: int(ptr.Deref(deployment.Spec.Replicas, 0)), Updated: int(s.UpdatedReplicas), Ready: int(s.ReadyReplicas),
		}, err
	}))

	return PodNetwork{Released: len(released.Items) > 0, Agents: agents, DNS: dns}, err
}

// arrived is how far a workload has come; one that is not there has not.
func arrived(r Rollout, err error) (Rollout, error) {
	switch {
	case apierrors.IsNotFound(err):
		return Rollout{}, missing(err)
	case err != nil:
		return Rollout{}, err
	default:
		return r, nil
	}
}

// KubeProxy is the image of Talos' own kube-proxy.
func (k *Client) KubeProxy(ctx context.Context, address string) (string, error) {
	set, err := askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (*appsv1.DaemonSet, error) {
		return c.AppsV1().DaemonSets("kube-system").Get(ctx, "kube-proxy", metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return "", missing(err)
	}

	if err != nil {
		return "", err
	}

	for _, container := range set.Spec.Template.Spec.Containers {
		if container.Name == "kube-proxy" {
			return container.Image, nil
		}
	}

	return "", nil
}

// NotServedError says that an API server has no DaemonSets at all: it is none of Kubernetes' own.
type NotServedError struct{ Message string }

// Error implements error.
func (e *NotServedError) Error() string { return e.Message }

// missing is nil where an object is not there, and says what an API server that does not know its kind says.
func missing(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		status.Status().Details != nil && status.Status().Details.Name != "" {
		return nil
	}

	return &NotServedError{Message: messageOf(err)}
}
