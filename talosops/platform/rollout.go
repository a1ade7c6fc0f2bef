package platform

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
)

// workloads are the kinds that are waited for.
var workloads = []string{"Deployment", "DaemonSet", "StatefulSet"}

// rolledOut waits until all pods of the release are those of its newest revision, and ready.
func (r *releaser) rolledOut(ctx context.Context) error {
	newest, err := patientOf(ctx, r, func(context.Context) (*release.Release, error) {
		cfg, err := r.helm()
		if err != nil {
			return nil, err
		}

		return r.newest(cfg)
	})
	if err != nil || newest == nil {
		return err
	}

	objects, err := parseManifest("the manifest of the release", []byte(newest.Manifest))
	if err != nil {
		return err
	}

	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return !slices.Contains(workloads, object.GetKind())
	})

	for {
		open, err := patientOf(ctx, r, func(ctx context.Context) ([]string, error) { return r.unready(ctx, objects) })
		if err != nil {
			return err
		}

		if len(open) == 0 {
			return nil
		}

		r.printf("waits: %s", strings.Join(open, "; "))

		if checks.Pause(ctx, interval) != nil {
			return fmt.Errorf("its pods are not ready after %s:\n  %s", r.req.Timeout, strings.Join(open, "\n  "))
		}
	}
}

// unready says what each workload that is not ready lacks.
func (r *releaser) unready(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	var open []string

	for _, object := range objects {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = r.req.Namespace
		}

		resource, err := r.cluster.resource(object.GroupVersionKind(), namespace)
		if err != nil {
			return nil, err
		}

		there, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			open = append(open, kube.ObjectName(object)+": it is gone: someone deleted it")

			continue
		}

		if err != nil {
			return nil, err
		}

		found, err := status.Compute(there)
		if err != nil {
			return nil, err
		}

		if found.Status == status.CurrentStatus {
			continue
		}

		troubles, err := r.troubles(ctx, there)
		if err != nil {
			return nil, err
		}

		open = append(open, strings.Join(append([]string{kube.ObjectName(there) + ": " + found.Message}, troubles...), "; "))
	}

	return open, nil
}

// named is how many pods with troubles are named.
const named = 3

// troubles are what the pods of a workload say of themselves.
func (r *releaser) troubles(ctx context.Context, workload *unstructured.Unstructured) ([]string, error) {
	text, _, _ := unstructured.NestedMap(workload.Object, "spec", "selector")

	var selector metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(text, &selector); err != nil {
		return nil, err
	}

	resource, err := r.cluster.resource(corev1.SchemeGroupVersion.WithKind("Pod"), workload.GetNamespace())
	if err != nil {
		return nil, err
	}

	list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&selector)})
	if err != nil {
		return nil, err
	}

	var found []string

	for _, item := range list.Items {
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pod); err != nil {
			return nil, err
		}

		if trouble := troubleOf(pod); trouble != "" && len(found) < named {
			found = append(found, fmt.Sprintf("pod %s on %s: %s", pod.Name, pod.Spec.NodeName, trouble))
		}
	}

	return found, nil
}

// troubleOf is what keeps a pod from running: where no node takes it, and why a container waits or ended.
func troubleOf(pod corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}

	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting, ended := container.State.Waiting, container.LastTerminationState.Terminated
		if container.State.Terminated != nil && container.State.Terminated.ExitCode != 0 {
			ended = container.State.Terminated
		}

		var parts []string
		if waiting != nil && waiting.Reason != "PodInitializing" && waiting.Reason != "ContainerCreating" {
			parts = append(parts, waiting.Reason)
			if ended == nil {
				parts = append(parts, waiting.Message)
			}
		}

		if ended != nil && !container.Ready {
			parts = append(parts, fmt.Sprintf("exit status %d", ended.ExitCode), lastLine(ended.Message))
		}

		parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
		if len(parts) > 0 {
			return container.Name + ": " + strings.Join(parts, ": ")
		}
	}

	return ""
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")

	return lines[len(lines)-1]
}
