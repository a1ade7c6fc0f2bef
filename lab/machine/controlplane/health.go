package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// kubeSystem is the namespace of Kubernetes' own workloads.
const kubeSystem = "kube-system"

// AppProblem is what the pods of an app in kube-system miss, by their label k8s-app, in Talos' words; empty where they
// run. A static pod runs on every one of so many control planes; other apps are those of a DaemonSet or a Deployment.
func AppProblem(ctx context.Context, client *rest.RESTClient, app string, controlPlanes int) string {
	wanted := controlPlanes

	if !slices.Contains(StaticPods(), app) {
		var err error
		if wanted, err = wantedPods(ctx, client, app); err != nil {
			return err.Error()
		}

		if wanted == 0 {
			return "" // the cluster has no such workload
		}
	}

	var pods corev1.PodList
	if err := listApp(ctx, client, "/api/v1", "pods", app, &pods); err != nil {
		return err.Error()
	}

	return judgePods(pods.Items, wanted, app)
}

// listApp lists what has the label of an app in kube-system.
func listApp(ctx context.Context, client *rest.RESTClient, root, plural, app string, list any) error {
	text, err := client.Get().AbsPath(root, "namespaces", kubeSystem, plural).Param("labelSelector", "k8s-app="+app).
		Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(text, list)
	}

	return err
}

// wantedPods is how many pods an app's DaemonSet or Deployment has to have; none where there is neither.
func wantedPods(ctx context.Context, client *rest.RESTClient, app string) (int, error) {
	var sets appsv1.DaemonSetList
	if err := listApp(ctx, client, "/apis/apps/v1", "daemonsets", app, &sets); err != nil {
		return 0, err
	}

	for _, s := range sets.Items {
		return max(1, int(s.Status.DesiredNumberScheduled)), nil
	}

	var deployments appsv1.DeploymentList
	if err := listApp(ctx, client, "/apis/apps/v1", "deployments", app, &deployments); err != nil {
		return 0, err
	}

	for _, d := range deployments.Items {
		return max(1, int(*d.Spec.Replicas)), nil // the API server fills it in
	}

	return 0, nil
}

// judgePods says what pods lack of those that are wanted, in Talos' words.
func judgePods(pods []corev1.Pod, wanted int, app string) string {
	at := kubeSystem + "\" and label selector \"k8s-app=" + app + "\""

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
	case ready != wanted:
		return fmt.Sprintf("expected %d ready pods, got %d", wanted, ready)
	default:
		return ""
	}
}
