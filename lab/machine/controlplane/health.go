package controlplane

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// AppProblem returns in Talos' words why the pods of an app in kube-system, selected by their label k8s-app, are not
// ready; empty if they are. A static pod runs on every control plane; other apps are those of a DaemonSet or
// Deployment.
func AppProblem(ctx context.Context, client kubernetes.Interface, app string, controlPlanes int) string {
	desired := controlPlanes

	if !slices.Contains(StaticPods(), app) {
		var err error
		if desired, err = desiredPods(ctx, client, app); err != nil {
			return err.Error()
		}

		if desired == 0 {
			return "" // the cluster has no such workload
		}
	}

	pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, appSelector(app))
	if err != nil {
		return err.Error()
	}

	return podsProblem(pods.Items, desired, app)
}

// appSelector selects objects by the label of an app.
func appSelector(app string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: "k8s-app=" + app}
}

// desiredPods returns the number of pods of an app's DaemonSet or Deployment; 0 if there is neither.
func desiredPods(ctx context.Context, client kubernetes.Interface, app string) (int, error) {
	sets, err := client.AppsV1().DaemonSets(metav1.NamespaceSystem).List(ctx, appSelector(app))
	if err != nil {
		return 0, err
	}

	for _, s := range sets.Items {
		return max(1, int(s.Status.DesiredNumberScheduled)), nil
	}

	deployments, err := client.AppsV1().Deployments(metav1.NamespaceSystem).List(ctx, appSelector(app))
	if err != nil {
		return 0, err
	}

	for _, d := range deployments.Items {
		return max(1, int(*d.Spec.Replicas)), nil // defaulted by the API server
	}

	return 0, nil
}

// podsProblem returns in Talos' words why pods are not ready; empty if they are.
func podsProblem(pods []corev1.Pod, desired int, app string) string {
	at := metav1.NamespaceSystem + "\" and label selector \"k8s-app=" + app + "\""

	if len(pods) == 0 {
		return "no pods found for namespace \"" + at
	}

	ready, notReady := 0, []string{}

	for _, p := range pods {
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed:
		case slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}):
			ready++
		default:
			notReady = append(notReady, p.Name)
		}
	}

	switch {
	case ready == 0:
		return "no ready pods found for namespace \"" + at
	case len(notReady) > 0:
		return fmt.Sprintf("some pods are not ready: %v", notReady)
	case ready != desired:
		return fmt.Sprintf("expected %d ready pods, got %d", desired, ready)
	default:
		return ""
	}
}
