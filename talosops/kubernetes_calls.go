package main

import (
	"cmp"
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

	"talos-proxmox/talosops/kubeupgrade"
)

// kubernetesImages asks a control plane for the images that it makes its static pods and its kubelet of.
func (t *talosClients) kubernetesImages(ctx context.Context, address string) (images kubeupgrade.Images, err error) {
	err = tell(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		server, serverErr := specOf[*k8s.APIServerConfig](ctx, c, k8s.NewAPIServerConfig(k8s.APIServerConfigID))
		manager, managerErr := specOf[*k8s.ControllerManagerConfig](
			ctx, c, k8s.NewControllerManagerConfig(k8s.ControllerManagerConfigID))
		scheduler, schedulerErr := specOf[*k8s.SchedulerConfig](ctx, c, k8s.NewSchedulerConfig(k8s.SchedulerConfigID))
		kubelet, kubeletErr := specOf[*k8s.KubeletSpec](ctx, c, k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID))

		images = kubeupgrade.Images{
			APIServer: server.TypedSpec().Image, ControllerManager: manager.TypedSpec().Image,
			Scheduler: scheduler.TypedSpec().Image, Kubelet: kubelet.TypedSpec().Image,
		}

		return cmp.Or(serverErr, managerErr, schedulerErr, kubeletErr)
	})

	return images, err
}

// specOf reads a resource; one that is not there is as it was given.
func specOf[R resource.Resource](ctx context.Context, c *client.Client, otherwise R) (R, error) {
	found, err := safe.StateGet[R](ctx, c.COSI, *otherwise.Metadata())

	switch {
	case state.IsNotFoundError(err):
		return otherwise, nil
	case err != nil:
		return otherwise, err
	default:
		return found, nil
	}
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
