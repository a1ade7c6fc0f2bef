package kube

import (
	"context"
	"errors"
	"net/netip"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// CNINamespace is the namespace of the CNI and of CoreDNS.
const CNINamespace = "kube-system"

// PodNetwork returns the state of the CNI's release and agents and of CoreDNS.
func (k *Client) PodNetwork(ctx context.Context, address netip.Addr, release string) (PodNetwork, error) {
	released, err := call(ctx, k, address, func(
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
	if found.Agents, err = k.rolloutProblem(ctx, address, "daemonsets", release); err == nil {
		found.DNS, err = k.rolloutProblem(ctx, address, "deployments", "coredns")
	}

	return found, err
}

// rolloutProblem says why a workload in the CNI's namespace is not rolled out; empty = it is.
func (k *Client) rolloutProblem(ctx context.Context, address netip.Addr, resource, name string) (string, error) {
	o, err := call(ctx, k, address, func(
		ctx context.Context, c serverClient,
	) (*unstructured.Unstructured, error) {
		workloads := c.objects.Resource(appsv1.SchemeGroupVersion.WithResource(resource)).Namespace(CNINamespace)

		return workloads.Get(ctx, name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return "is not there", notFoundError(err)
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

// KubeProxy returns the image of Talos' own kube-proxy; empty = there is none.
func (k *Client) KubeProxy(ctx context.Context, address netip.Addr) (string, error) {
	set, err := call(ctx, k, address, func(ctx context.Context, c serverClient) (*appsv1.DaemonSet, error) {
		return c.AppsV1().DaemonSets("kube-system").Get(ctx, "kube-proxy", metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return "", notFoundError(err)
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

// NotServedError says that an API server does not serve DaemonSets at all: it is not Kubernetes' own.
type NotServedError struct{ Message string }

// Error implements error.
func (e *NotServedError) Error() string { return e.Message }

// notFoundError returns nil if the object of a 404 does not exist, and a NotServedError if the API server does not
// serve its kind.
func notFoundError(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		status.Status().Details != nil && status.Status().Details.Name != "" {
		return nil
	}

	return &NotServedError{Message: messageOf(err)}
}
