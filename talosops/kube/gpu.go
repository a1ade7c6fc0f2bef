package kube

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPURuntime is the RuntimeClass of pods with GPUs, and its handler.
const GPURuntime = "nvidia"

// pluginImage is in the name of every image of NVIDIA's device plugin.
const pluginImage = "nvidia/k8s-device-plugin"

func nameOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// hasPlugin says whether one of the containers is NVIDIA's device plugin.
func hasPlugin(spec corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
		return strings.Contains(c.Image, pluginImage)
	})
}

// GPUCluster asks for what lies between a machine's driver and its node's resource.
func (k *Client) GPUCluster(ctx context.Context, address, node string) (GPUCluster, error) {
	var found GPUCluster

	client, err := k.client(address)
	if err != nil {
		return found, err
	}

	classes, err := client.NodeV1().RuntimeClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return found, apiError(err)
	}

	for _, class := range classes.Items {
		if class.Name == GPURuntime {
			found.HasClass, found.Handler = true, class.Handler
		}
	}

	sets, err := client.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return found, apiError(err)
	}

	pods, err := k.podList(ctx, address, node)
	if err != nil {
		return found, err
	}

	for _, set := range sets.Items {
		if hasPlugin(set.Spec.Template.Spec) {
			found.Plugins = append(found.Plugins, nameOf(&set))
			found.addWarnings(ctx, client, &set)
		}
	}

	for _, pod := range pods.Items {
		if hasPlugin(pod.Spec) {
			found.Pods = append(found.Pods, gpuPodOf(pod))
			found.addWarnings(ctx, client, &pod)
		}
	}

	return found, nil
}

// gpuPodOf says whether a pod runs, and if not, what its container said.
func gpuPodOf(pod corev1.Pod) PluginPod {
	p := PluginPod{Name: nameOf(&pod), Running: pod.Status.Phase == corev1.PodRunning}
	for _, s := range pod.Status.ContainerStatuses {
		p.Running = p.Running && s.Ready
		if s.State.Waiting != nil {
			p.Reason = s.State.Waiting.Reason
		}

		if end := s.LastTerminationState.Terminated; end != nil {
			p.Reason += " (" + strings.Join(strings.Fields(cmp.Or(end.Message, end.Reason+", see kubectl logs")), " ") + ")"
		}
	}

	return p
}

// addWarnings adds the warnings about an object. They only explain: without them the gate still knows which link is
// missing.
func (c *GPUCluster) addWarnings(ctx context.Context, client serverClient, o metav1.Object) {
	events, err := client.CoreV1().Events(o.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + o.GetName(),
	})
	if err != nil {
		return
	}

	for _, e := range events.Items {
		// A crash is told by the container's own state.
		text := strings.Join(strings.Fields(e.Message), " ")
		if e.Type == corev1.EventTypeWarning && e.Reason != "BackOff" && !slices.Contains(c.Warnings, text) {
			c.Warnings = append(c.Warnings, text)
		}
	}
}
