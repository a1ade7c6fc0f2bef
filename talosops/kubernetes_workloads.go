package main

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// cniNamespace has the CNI, and CoreDNS.
const cniNamespace = "kube-system"

// podNetwork asks for what brings the network of pods.
func (k *kubernetesClients) podNetwork(ctx context.Context, address, release string) (podNetwork, error) {
	released, err := askKubernetes(ctx, k, address, func(
		ctx context.Context, c kubernetesClient,
	) (*corev1.SecretList, error) {
		return c.CoreV1().Secrets(cniNamespace).List(ctx, metav1.ListOptions{
			Limit: 1, LabelSelector: "owner=helm,status=deployed,name=" + release,
		})
	})
	if err != nil {
		return podNetwork{}, err
	}

	agents, err := arrived(askKubernetes(ctx, k, address, func(ctx context.Context, c kubernetesClient) (rollout, error) {
		set, err := c.AppsV1().DaemonSets(cniNamespace).Get(ctx, release, metav1.GetOptions{})
		s := set.Status

		return rollout{
			there: true, stale: s.ObservedGeneration < set.Generation, wanted: int(s.DesiredNumberScheduled),
			updated: int(s.UpdatedNumberScheduled), ready: int(s.NumberReady),
		}, err
	}))
	if err != nil {
		return podNetwork{}, err
	}

	dns, err := arrived(askKubernetes(ctx, k, address, func(ctx context.Context, c kubernetesClient) (rollout, error) {
		deployment, err := c.AppsV1().Deployments(cniNamespace).Get(ctx, "coredns", metav1.GetOptions{})
		s := deployment.Status

		return rollout{
			there: true, stale: s.ObservedGeneration < deployment.Generation,
			wanted: int(ptr.Deref(deployment.Spec.Replicas, 0)), updated: int(s.UpdatedReplicas), ready: int(s.ReadyReplicas),
		}, err
	}))

	return podNetwork{released: len(released.Items) > 0, agents: agents, dns: dns}, err
}

// arrived is how far a workload has come; one that is not there has not.
func arrived(r rollout, err error) (rollout, error) {
	switch {
	case apierrors.IsNotFound(err):
		return rollout{}, missing(err)
	case err != nil:
		return rollout{}, err
	default:
		return r, nil
	}
}

// kubeProxy is the image of Talos' own kube-proxy.
func (k *kubernetesClients) kubeProxy(ctx context.Context, address string) (string, error) {
	set, err := askKubernetes(ctx, k, address, func(ctx context.Context, c kubernetesClient) (*appsv1.DaemonSet, error) {
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

// notServedError says that an API server has no DaemonSets at all: it is none of Kubernetes' own.
type notServedError struct{ message string }

func (e *notServedError) Error() string { return e.message }

// missing is nil where an object is not there, and says what an API server that does not know its kind says.
func missing(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		status.Status().Details != nil && status.Status().Details.Name != "" {
		return nil
	}

	return &notServedError{messageOf(err)}
}
