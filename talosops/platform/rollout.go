package platform

import (
	"cmp"
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

// workloadKinds are the kinds that awaitRollout waits for.
var workloadKinds = []string{"Deployment", "DaemonSet", "StatefulSet"}

// awaitRollout waits until all pods of the release are of its newest revision and ready.
func (r *releaser) awaitRollout(ctx context.Context) error {
	newest, err := retryValue(ctx, r, func(context.Context) (*release.Release, error) {
		cfg, err := r.helm()
		if err != nil {
			return nil, err
		}

		return r.newestRevision(cfg)
	})
	if err != nil || newest == nil {
		return err
	}

	objects, err := parseManifest("the manifest of the release", []byte(newest.Manifest))
	if err != nil {
		return err
	}

	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return !slices.Contains(workloadKinds, object.GetKind())
	})

	for {
		problems, err := retryValue(ctx, r, func(ctx context.Context) ([]string, error) {
			return r.rolloutProblems(ctx, objects)
		})
		if err != nil {
			return err
		}

		if len(problems) == 0 {
			return nil
		}

		r.printf("waits: %s", strings.Join(problems, "; "))

		if checks.Pause(ctx, interval) != nil {
			return fmt.Errorf("its pods are not ready after %s:\n  %s", r.req.Timeout, strings.Join(problems, "\n  "))
		}
	}
}

// rolloutProblems returns the reasons of each workload that is not rolled out.
func (r *releaser) rolloutProblems(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	var problems []string

	for _, object := range objects {
		resource, err := r.cluster.resource(object.GroupVersionKind(), cmp.Or(object.GetNamespace(), r.req.Namespace))
		if err != nil {
			return nil, err
		}

		live, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			problems = append(problems, kube.ObjectName(object)+": it is gone: someone deleted it")

			continue
		}

		if err != nil {
			return nil, err
		}

		found, err := status.Compute(live)
		if err != nil {
			return nil, err
		}

		if found.Status == status.CurrentStatus {
			continue
		}

		pods, err := r.podProblems(ctx, live)
		if err != nil {
			return nil, err
		}

		reasons := append([]string{found.Message}, pods...)
		problems = append(problems, kube.ObjectName(live)+": "+strings.Join(reasons, "; "))
	}

	return problems, nil
}

// maxProblems is the number of pods that podProblems names.
const maxProblems = 3

// podProblems says why pods of a workload do not run.
func (r *releaser) podProblems(ctx context.Context, workload *unstructured.Unstructured) ([]string, error) {
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

	var problems []string

	for _, item := range list.Items {
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pod); err != nil {
			return nil, err
		}

		if problem := podProblem(pod); problem != "" && len(problems) < maxProblems {
			problems = append(problems, fmt.Sprintf("pod %s on %s: %s", pod.Name, pod.Spec.NodeName, problem))
		}
	}

	return problems, nil
}

// podProblem says why a pod does not run: it is unschedulable, or a container waits or has terminated; empty = it runs.
func podProblem(pod corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Message
		}
	}

	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting, terminated := container.State.Waiting, container.LastTerminationState.Terminated
		if container.State.Terminated != nil && container.State.Terminated.ExitCode != 0 {
			terminated = container.State.Terminated
		}

		var parts []string
		if waiting != nil && waiting.Reason != "PodInitializing" && waiting.Reason != "ContainerCreating" {
			parts = append(parts, waiting.Reason)
			if terminated == nil {
				parts = append(parts, waiting.Message)
			}
		}

		if terminated != nil && !container.Ready {
			parts = append(parts, fmt.Sprintf("exit status %d", terminated.ExitCode), lastLine(terminated.Message))
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
