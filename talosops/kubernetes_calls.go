package main

import (
	"context"
	"errors"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubernetesImages asks a control plane for the images that it makes its static pods and its kubelet of.
func (t *talosClients) kubernetesImages(ctx context.Context, address string) (kubernetesImages, error) {
	return ask(ctx, t, address, func(ctx context.Context, c *client.Client) (kubernetesImages, error) {
		var images kubernetesImages

		for _, read := range []func() error{
			func() error {
				return imageOf(ctx, c, k8s.NewAPIServerConfig(k8s.APIServerConfigID).Metadata(), &images.APIServer,
					func(r *k8s.APIServerConfig) string { return r.TypedSpec().Image })
			},
			func() error {
				at := k8s.NewControllerManagerConfig(k8s.ControllerManagerConfigID).Metadata()

				return imageOf(ctx, c, at, &images.ControllerManager,
					func(r *k8s.ControllerManagerConfig) string { return r.TypedSpec().Image })
			},
			func() error {
				return imageOf(ctx, c, k8s.NewSchedulerConfig(k8s.SchedulerConfigID).Metadata(), &images.Scheduler,
					func(r *k8s.SchedulerConfig) string { return r.TypedSpec().Image })
			},
			func() error {
				return imageOf(ctx, c, k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID).Metadata(), &images.Kubelet,
					func(r *k8s.KubeletSpec) string { return r.TypedSpec().Image })
			},
		} {
			if err := read(); err != nil {
				return kubernetesImages{}, err
			}
		}

		return images, nil
	})
}

// imageOf reads an image of a resource; none of one that is not there.
func imageOf[R resource.Resource](
	ctx context.Context, c *client.Client, at *resource.Metadata, into *string, of func(R) string,
) error {
	found, err := safe.StateGet[R](ctx, c.COSI, *at)
	if state.IsNotFoundError(err) {
		return nil
	}

	if err != nil {
		return err
	}

	*into = of(found)

	return nil
}

// notServedError says that an API server has no DaemonSets at all: it is none of Kubernetes' own.
type notServedError struct{ message string }

func (e *notServedError) Error() string { return e.message }

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

// missing is nil where an object is not there, and says what an API server that does not know its kind says.
func missing(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		status.Status().Details != nil && status.Status().Details.Name != "" {
		return nil
	}

	return &notServedError{messageOf(err)}
}
