package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// script is a program of the world's own.
func (w *world) script(name, text string) string {
	w.t.Helper()

	path := filepath.Join(w.dir, name)
	require.NoError(w.t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))

	return path
}

// TestRealRemoval takes nodes out of a cluster of real etcd and Kubernetes: a worker whose pods a budget holds, two of
// three control planes and back, one that is dead.
func TestRealRemoval(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	d := newDrill(t, w)
	s := stack{Network: w.network, Clusters: []cluster{one(3, 2)}}
	s.Clusters[0].VIP = 0
	file := func() string { return d.withBackups(s.yaml(t)) }

	w.up(file())

	client := kubernetesOf(t, w.outputs())
	deployWeb(t, client)

	// A budget holds both pods, one of which is on the worker that goes: nothing is lost.
	s.Clusters[0].Workers = 1
	undo := w.leavesWithin(20 * time.Second)
	said := w.fails(file())

	undo()

	assert.Contains(t, said, "one-general-2 could not be drained, and was left as it is after 20s")
	assert.Contains(t, said, "pod default/web-")
	assert.Contains(t, said, "The disruption budget web needs 2 healthy pods and has 2 currently")
	assert.Contains(t, w.machines(), "one-general-2")

	node, err := client.CoreV1().Nodes().Get(t.Context(), "one-general-2", metav1.GetOptions{})
	require.NoError(t, err)
	assert.False(t, node.Spec.Unschedulable, "the cordon is lifted")

	patchWeb(t, client, 1)
	w.up(file())
	assert.NotContains(t, w.machines(), "one-general-2")
	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1")

	// Three control planes, one, and three again: each that goes leaves a snapshot.
	s.Clusters[0].ControlPlanes = 1
	said = w.since(func() { w.up(file()) })
	assert.Equal(t, 2, strings.Count(said, "etcd: snapshot "+d.folder))
	w.requireMembers(1)
	w.requireNodes("one-cp-1", "one-general-1")

	s.Clusters[0].ControlPlanes = 3
	w.up(file())
	w.requireMembers(3)
	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1")

	// A control plane that is dead is replaced.
	third, _ := w.lab.Data.VM(w.machines()["one-cp-3"])
	w.do(w.lab.Data.Stop(labRoot, third.Host, third.ID))

	said = w.since(func() { w.up(file(), optup.Replace([]string{w.urn(file(), "one-cp-3-vm")})) })
	assert.Contains(t, said, "one-cp-3: boot: the machine is silent, and taken for dead")
	w.requireMembers(3)
	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1")

	list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(t, err)
	assert.NotEmpty(t, list.Items)

	said = w.since(func() { w.destroy(file()) })
	assert.NotContains(t, said, "wipes itself", "nothing leaves a cluster that goes")
	w.requireEmpty()
}

// deployWeb has two pods run, on two workers, and a budget that wants both.
func deployWeb(t *testing.T, client kubernetes.Interface) {
	t.Helper()

	labels := map[string]string{"app": "web"}
	meta := metav1.ObjectMeta{Name: "web"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	spread := []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector,
	}}

	_, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: selector,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				TopologySpreadConstraints: spread,
				Containers:                []corev1.Container{{Name: "web", Image: "example.org/web:v1"}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	_, err = client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(2)), Selector: selector},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	awaitWeb(t, client, func(b *policyv1.PodDisruptionBudget) bool { return b.Status.CurrentHealthy == 2 })
}

// patchWeb changes how many pods the budget wants.
func patchWeb(t *testing.T, client kubernetes.Interface, available int32) {
	t.Helper()

	budgets := client.PolicyV1().PodDisruptionBudgets("default")
	b, err := budgets.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)

	b.Spec.MinAvailable = new(intstr.FromInt32(available))
	_, err = budgets.Update(t.Context(), b, metav1.UpdateOptions{})
	require.NoError(t, err)
	awaitWeb(t, client, func(b *policyv1.PodDisruptionBudget) bool { return b.Status.DisruptionsAllowed > 0 })
}

func awaitWeb(t *testing.T, client kubernetes.Interface, is func(*policyv1.PodDisruptionBudget) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		b, err := client.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), "web", metav1.GetOptions{})

		return err == nil && is(b)
	}, within, 100*time.Millisecond)
}
