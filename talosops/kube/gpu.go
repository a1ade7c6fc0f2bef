package kube

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPURuntime is the name of the RuntimeClass of pods with GPUs, and of its handler.
const GPURuntime = "nvidia"

// pluginImage is part of the name of every image of NVIDIA's device plugin.
const pluginImage = "nvidia/k8s-device-plugin"

func namespacedName(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// hasDevicePlugin reports whether a container runs NVIDIA's device plugin.
func hasDevicePlugin(spec corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
		return strings.Contains(c.Image, pluginImage)
	})
}

// GPUCluster returns everything between a machine's driver and the resource of its node.
func (k *Client) GPUCluster(ctx context.Context, address netip.Addr, node string) (GPUCluster, error) {
	return call(ctx, k, address, func(ctx context.Context, client serverClient) (found GPUCluster, err error) {
		classes, err := client.NodeV1().RuntimeClasses().List(ctx, metav1.ListOptions{})
		if err != nil {
			return found, err
		}

		for _, class := range classes.Items {
			if class.Name == GPURuntime {
				found.HasClass, found.Handler = true, class.Handler
			}
		}

		sets, err := client.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return found, err
		}

		pods, err := k.podList(ctx, address, node)
		if err != nil {
			return found, err
		}

		for _, set := range sets.Items {
			if hasDevicePlugin(set.Spec.Template.Spec) {
				found.Plugins = append(found.Plugins, namespacedName(&set))
				found.addWarnings(ctx, client, &set)
			}
		}

		for _, pod := range pods.Items {
			if hasDevicePlugin(pod.Spec) {
				found.Pods = append(found.Pods, pluginPodOf(pod))
				found.addWarnings(ctx, client, &pod)
			}
		}

		return found, nil
	})
}

// pluginPodOf returns whether a pod of the device plugin runs, and if not, the reason.
func pluginPodOf(pod corev1.Pod) PluginPod {
	p := PluginPod{Name: namespacedName(&pod), Running: pod.Status.Phase == corev1.PodRunning}
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

// addWarnings adds the warning events about an object. They only explain, so an error is ignored: the health gate finds
// the missing link without them.
func (c *GPUCluster) addWarnings(ctx context.Context, client serverClient, o metav1.Object) {
	events, err := client.CoreV1().Events(o.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + o.GetName(),
	})
	if err != nil {
		return
	}

	for _, e := range events.Items {
		// BackOff is left out: the container's state has the crash.
		text := strings.Join(strings.Fields(e.Message), " ")
		if e.Type == corev1.EventTypeWarning && e.Reason != "BackOff" && !slices.Contains(c.Warnings, text) {
			c.Warnings = append(c.Warnings, text)
		}
	}
}
