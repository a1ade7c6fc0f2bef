package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
)

// kubernetesImages asks a control plane for the images that it makes its static pods and its kubelet of.
func (t *talosClients) kubernetesImages(ctx context.Context, address string) (kubernetesImages, error) {
	return ask(ctx, t, address, func(c *client.Client) (kubernetesImages, error) {
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
	answer, err := k.send(
		ctx, address, http.MethodGet, "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy", "", nil,
	)

	switch {
	case err != nil:
		return "", err
	case answer.code == http.StatusNotFound:
		return "", missing(answer.body)
	case answer.code != http.StatusOK:
		return "", fmt.Errorf("%s", answer.status)
	}

	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name  string `json:"name"`
						Image string `json:"image"`
					} `json:"containers"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(answer.body, &set); err != nil {
		return "", fmt.Errorf("unable to read the DaemonSet of kube-proxy: %w", err)
	}

	for _, container := range set.Spec.Template.Spec.Containers {
		if container.Name == "kube-proxy" {
			return container.Image, nil
		}
	}

	return "", nil
}

// missing is nil where an object is not there, and says what an API server that does not know its kind says.
func missing(body []byte) error {
	var status struct {
		Message string `json:"message"`
		Details struct {
			Name string `json:"name"`
		} `json:"details"`
	}
	if err := json.Unmarshal(body, &status); err == nil && status.Details.Name != "" {
		return nil
	}

	return &notServedError{cmp.Or(status.Message, strings.TrimSpace(string(body)))}
}
