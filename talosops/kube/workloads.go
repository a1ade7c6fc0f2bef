package kube

import (
	"context"
	"errors"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

	found := PodNetwork{Released: len(released.Items) > 0}
	if found.Agents, err = k.lacks(ctx, address, "daemonsets", release); err == nil {
		found.DNS, err = k.lacks(ctx, address, "deployments", "coredns")
	}

	return found, err
}

// lacks is what keeps a workload beside the CNI from being rolled out; empty = it is.
func (k *Client) lacks(ctx context.Context, address, resource, name string) (string, error) {
	o, err := askKubernetes(ctx, k, address, func(
		ctx context.Context, c serverClient,
	) (*unstructured.Unstructured, error) {
		workloads := c.objects.Resource(appsv1.SchemeGroupVersion.WithResource(resource)).Namespace(CNINamespace)

		return workloads.Get(ctx, name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return "is not there", missing(err)
	}

	if err != nil {
		return "", err
	}

	found, err := status.Compute(o)
	if err != nil || found.Status == status.CurrentStatus {
		return "", err
	}

	return "is being rolled out: " + found.Message, nil
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
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		answer.Status().Details != nil && answer.Status().Details.Name != "" {
		return nil
	}

	return &NotServedError{Message: messageOf(err)}
}
