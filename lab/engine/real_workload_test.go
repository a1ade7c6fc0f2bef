package engine_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/stacks"
)

// workload is what users have on a cluster of real Kubernetes.
type workload struct {
	*testing.T

	client kubernetes.Interface
}

func workloadOn(t *testing.T, w *world) workload {
	t.Helper()

	return workload{t, kubernetesOf(t, w.outputs())}
}

// labelled is the metadata of an object and of its pods.
func labelled(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": name}}
}

// withCNI runs a CNI that fits Talos, and returns when all nodes are Ready.
func (k workload) withCNI(nodes int) {
	k.Helper()

	const folder = "/etc/cni/net.d"

	meta := labelled("cni", "kube-system")
	_, err := k.client.AppsV1().DaemonSets(meta.Namespace).Create(k.Context(), &appsv1.DaemonSet{
		ObjectMeta: meta,
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: meta, Spec: corev1.PodSpec{
				HostNetwork: true, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{
					Name: "agent", Image: "example.org/cni:v1", VolumeMounts: []corev1.VolumeMount{{Name: "cni", MountPath: folder}},
				}},
				Volumes: []corev1.Volume{{Name: "cni", VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: folder},
				}}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(k, err)
	k.eventually(func() bool { return k.ready() == nodes }, "nodes are Ready")
}

// ready counts the nodes that are Ready and take pods.
func (k workload) ready() int {
	nodes, err := k.client.CoreV1().Nodes().List(k.Context(), metav1.ListOptions{})
	if err != nil {
		return 0
	}

	count := 0

	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !n.Spec.Unschedulable {
				count++
			}
		}
	}

	return count
}

// cordoned are the nodes that take no pods.
func (k workload) cordoned() (names []string) {
	nodes, err := k.client.CoreV1().Nodes().List(k.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}

	for _, n := range nodes.Items {
		if n.Spec.Unschedulable {
			names = append(names, n.Name)
		}
	}

	return names
}

// deploy runs pods, of which a budget keeps some.
func (k workload) deploy(name string, replicas int32, kept int) {
	k.Helper()

	meta := labelled(name, "default")
	_, err := k.client.AppsV1().Deployments(meta.Namespace).Create(k.Context(), &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: meta, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "web", Image: "example.org/web:v1"}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(k, err)
	k.eventually(func() bool {
		d, err := k.client.AppsV1().Deployments(meta.Namespace).Get(k.Context(), name, metav1.GetOptions{})

		return err == nil && d.Status.ReadyReplicas == replicas
	}, "pods of %s run", name)

	_, err = k.client.PolicyV1().PodDisruptionBudgets(meta.Namespace).Create(k.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: meta,
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt(kept)), Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
		},
	}, metav1.CreateOptions{})
	require.NoError(k, err)
	k.budget(name, kept)
}

// budget changes how many pods a budget keeps, and waits until that counts.
func (k workload) budget(name string, kept int) {
	k.Helper()

	budgets := k.client.PolicyV1().PodDisruptionBudgets("default")
	k.eventually(func() bool {
		b, err := budgets.Get(k.Context(), name, metav1.GetOptions{})
		if err == nil && b.Spec.MinAvailable.IntValue() != kept {
			b.Spec.MinAvailable = new(intstr.FromInt(kept))
			b, err = budgets.Update(k.Context(), b, metav1.UpdateOptions{})
		}

		return err == nil && b.Status.ObservedGeneration == b.Generation && int(b.Status.DesiredHealthy) == kept
	}, "the budget of %s keeps %d", name, kept)
}

func (k workload) eventually(is func() bool, what string, values ...any) {
	k.Helper()
	require.Eventually(k, is, within, 100*time.Millisecond, fmt.Sprintf(what, values...))
}

// patrol writes and reads a key through the cluster's shared address all the time.
type patrol struct {
	t      *testing.T
	config []byte
	end    context.CancelFunc
	ended  sync.WaitGroup

	last   time.Time     // when there was an answer
	gap    time.Duration // the longest without one
	writes int
	lost   []string
}

const patrolled = "patrol"

// patrols begins; the caller ends it by report.
func (w *world) patrols(t *testing.T) *patrol {
	t.Helper()

	p := &patrol{t: t, config: []byte(output(t, w.outputs(), stacks.Kubeconfigs, "one"))}

	_, err := p.client().CoreV1().ConfigMaps("default").Create(
		t.Context(), &corev1.ConfigMap{ObjectMeta: labelled(patrolled, "default")}, metav1.CreateOptions{},
	)
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}

	ctx, end := context.WithCancel(t.Context())
	p.end = end
	p.ended.Go(func() { p.run(ctx) })

	return p
}

func (p *patrol) client() kubernetes.Interface {
	config, err := clientcmd.RESTConfigFromKubeConfig(p.config)
	require.NoError(p.t, err)

	config.Timeout = time.Second
	client, err := kubernetes.NewForConfig(config)
	require.NoError(p.t, err)

	return client
}

func (p *patrol) run(ctx context.Context) {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()

	client := p.client()
	p.last = time.Now()

	for {
		text := fmt.Sprint(p.writes + 1)

		err := writePatrolled(ctx, client, text)
		if err == nil {
			p.gap, p.last = max(p.gap, time.Since(p.last)), time.Now()
			p.writes++

			if now, err := client.CoreV1().ConfigMaps("default").Get(ctx, patrolled, metav1.GetOptions{}); err == nil &&
				now.Data["count"] != text {
				p.lost = append(p.lost, fmt.Sprintf("wrote %s, read %s", text, now.Data["count"]))
			}
		} else {
			client = p.client() // an address that has moved leaves connections behind
		}

		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

func writePatrolled(ctx context.Context, client kubernetes.Interface, text string) error {
	_, err := client.CoreV1().ConfigMaps("default").Update(ctx, &corev1.ConfigMap{
		ObjectMeta: labelled(patrolled, "default"), Data: map[string]string{"count": text},
	}, metav1.UpdateOptions{})

	return err
}

// finish ends the patrol.
func (p *patrol) finish() {
	p.end()
	p.ended.Wait()

	p.gap = max(p.gap, time.Since(p.last))
}

// report ends the patrol, and sees that no write was lost. How long the API was away is a figure of the machine that
// the test runs on: it is printed, and [TestSoak] judges it.
func (p *patrol) report() {
	p.t.Helper()
	p.finish()
	p.t.Logf("the API was away for %s at most, over %d writes", p.gap.Round(time.Millisecond), p.writes)
	assert.Positive(p.t, p.writes)
	assert.Empty(p.t, p.lost)
}

// requireHealth runs `talosctl health` of cluster one.
func (w *world) requireHealth(t *testing.T) {
	t.Helper()

	talosctl, err := filepath.Abs(filepath.Join(project, ".bin", "talosctl"))
	require.NoError(t, err)

	config := filepath.Join(w.dir, "talosconfig")
	require.NoError(t, os.WriteFile(config, []byte(output(t, w.outputs(), stacks.Talosconfigs, "one")), 0o600))

	out, err := exec.CommandContext(t.Context(), talosctl, "--talosconfig", config, "--nodes", w.network+".1.10",
		"health", "--wait-timeout", "2m").CombinedOutput()
	require.NoError(t, err, string(out))
}
