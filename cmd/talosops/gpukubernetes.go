package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// pluginImage is in the name of every image of NVIDIA's device plugin.
const pluginImage = "nvidia/k8s-device-plugin"

// kubeObject is what the gate reads of a workload or pod.
type kubeObject struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
		kubeContainers
		Template struct {
			Spec kubeContainers `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		Phase             string `json:"phase"`
		ContainerStatuses []struct {
			Ready bool `json:"ready"`
			State struct {
				Waiting *kubeReason `json:"waiting"`
			} `json:"state"`
			LastState struct {
				Terminated *kubeReason `json:"terminated"`
			} `json:"lastState"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

type kubeContainers struct {
	Containers []struct {
		Image string `json:"image"`
	} `json:"containers"`
}

type kubeReason struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (o kubeObject) name() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

func (c kubeContainers) plugin() bool {
	for _, container := range c.Containers {
		if strings.Contains(container.Image, pluginImage) {
			return true
		}
	}

	return false
}

// gpuCluster asks for what lies between a machine's driver and its node's resource.
func (k *kubernetesClients) gpuCluster(ctx context.Context, address, node string) (gpuCluster, error) {
	var (
		c       gpuCluster
		classes struct {
			Items []struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
				Handler string `json:"handler"`
			} `json:"items"`
		}
	)

	if err := k.list(ctx, address, "/apis/node.k8s.io/v1/runtimeclasses", "", &classes); err != nil {
		return c, err
	}

	for _, class := range classes.Items {
		if class.Metadata.Name == gpuRuntime {
			c.HasClass, c.Handler = true, class.Handler
		}
	}

	var sets, pods struct {
		Items []kubeObject `json:"items"`
	}
	if err := k.list(ctx, address, "/apis/apps/v1/daemonsets", "", &sets); err != nil {
		return c, err
	}

	if err := k.list(ctx, address, "/api/v1/pods", "spec.nodeName="+node, &pods); err != nil {
		return c, err
	}

	for _, set := range sets.Items {
		if set.Spec.Template.Spec.plugin() {
			c.Plugins = append(c.Plugins, set.name())
			c.addWarnings(ctx, k, address, set)
		}
	}

	for _, pod := range pods.Items {
		if pod.Spec.plugin() {
			c.Pods = append(c.Pods, pod.state())
			c.addWarnings(ctx, k, address, pod)
		}
	}

	return c, nil
}

// state says whether a pod runs, and if not, what its container said.
func (o kubeObject) state() gpuPod {
	p := gpuPod{Name: o.name(), Running: o.Status.Phase == "Running"}
	for _, s := range o.Status.ContainerStatuses {
		p.Running = p.Running && s.Ready
		if s.State.Waiting != nil {
			p.Reason = s.State.Waiting.Reason
		}

		if end := s.LastState.Terminated; end != nil {
			p.Reason += " (" + strings.Join(strings.Fields(cmp.Or(end.Message, end.Reason+", see kubectl logs")), " ") + ")"
		}
	}

	return p
}

// addWarnings adds the warnings about an object. They only explain: without them the gate still knows which link is
// missing.
func (c *gpuCluster) addWarnings(ctx context.Context, k *kubernetesClients, address string, o kubeObject) {
	var events struct {
		Items []struct {
			Type    string `json:"type"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"items"`
	}

	path := "/api/v1/namespaces/" + o.Metadata.Namespace + "/events"
	if err := k.list(ctx, address, path, "involvedObject.name="+o.Metadata.Name, &events); err != nil {
		return
	}

	for _, e := range events.Items {
		// A crash is told by the container's own state.
		text := strings.Join(strings.Fields(e.Message), " ")
		if e.Type == "Warning" && e.Reason != "BackOff" && !slices.Contains(c.Warnings, text) {
			c.Warnings = append(c.Warnings, text)
		}
	}
}

func (k *kubernetesClients) list(ctx context.Context, address, path, fieldSelector string, to any) error {
	if fieldSelector != "" {
		path += "?" + url.Values{"fieldSelector": {fieldSelector}}.Encode()
	}

	body, err := k.get(ctx, address, path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("unable to read %s: %w", path, err)
	}

	return nil
}
