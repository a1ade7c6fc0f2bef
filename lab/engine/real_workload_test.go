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
)

// workload runs users' pods on a cluster of real Kubernetes.
type workload struct {
	*testing.T

	client kubernetes.Interface
}

func newWorkload(t *testing.T, w *world) workload {
	t.Helper()

	return workload{t, w.kubeClient()}
}

// objectMeta is the metadata of an object and of its pods.
func objectMeta(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": name}}
}

// withCNI runs a CNI that fits Talos, and waits until all nodes are Ready.
func (k workload) withCNI(nodes int) {
	k.Helper()

	const folder = "/etc/cni/net.d"

	meta := objectMeta("cni", "kube-system")
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
	k.eventually(func() bool { return k.readyNodes() == nodes }, "nodes are Ready")
}

// readyNodes counts the nodes that are Ready and schedulable.
func (k workload) readyNodes() int {
	nodes, err := k.client.CoreV1().Nodes().List(k.Context(), metav1.ListOptions{})
	if err != nil {
		return 0
	}

	count := 0

	for _, n := range nodes.Items {
		if nodeIsReady(n) && !n.Spec.Unschedulable {
			count++
		}
	}

	return count
}

// cordonedNodes returns the nodes that are not schedulable.
func (k workload) cordonedNodes() (names []string) {
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

// deploy runs pods under a disruption budget.
func (k workload) deploy(name string, replicas int32, kept int) {
	k.Helper()

	meta := objectMeta(name, "default")
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
	k.setBudget(name, kept)
}

// setBudget sets how many pods a budget keeps, and waits until it is in effect.
func (k workload) setBudget(name string, kept int) {
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

func (k workload) eventually(condition func() bool, what string, values ...any) {
	k.Helper()
	require.Eventually(k, condition, within, 100*time.Millisecond, fmt.Sprintf(what, values...))
}

// apiProbe writes and reads a key through the cluster's shared address all the time.
type apiProbe struct {
	t       *testing.T
	config  []byte
	stop    context.CancelFunc
	stopped sync.WaitGroup

	lastAnswer time.Time     // time of the last answer
	gap        time.Duration // the longest time without an answer
	writes     int
	lostWrites []string
}

const probeName = "patrol"

// probeAPI starts a probe; the caller ends it with report.
func (w *world) probeAPI(t *testing.T) *apiProbe {
	t.Helper()

	p := &apiProbe{t: t, config: []byte(w.kubeconfig())}

	_, err := p.client().CoreV1().ConfigMaps("default").Create(
		t.Context(), &corev1.ConfigMap{ObjectMeta: objectMeta(probeName, "default")}, metav1.CreateOptions{},
	)
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}

	ctx, end := context.WithCancel(t.Context())
	p.stop = end
	p.stopped.Go(func() { p.run(ctx) })

	return p
}

func (p *apiProbe) client() kubernetes.Interface {
	config, err := clientcmd.RESTConfigFromKubeConfig(p.config)
	require.NoError(p.t, err)

	config.Timeout = time.Second
	client, err := kubernetes.NewForConfig(config)
	require.NoError(p.t, err)

	return client
}

func (p *apiProbe) run(ctx context.Context) {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()

	client := p.client()
	p.lastAnswer = time.Now()

	for {
		text := fmt.Sprint(p.writes + 1)

		err := writeProbe(ctx, client, text)
		if err == nil {
			p.gap, p.lastAnswer = max(p.gap, time.Since(p.lastAnswer)), time.Now()
			p.writes++

			if now, err := client.CoreV1().ConfigMaps("default").Get(ctx, probeName, metav1.GetOptions{}); err == nil &&
				now.Data["count"] != text {
				p.lostWrites = append(p.lostWrites, fmt.Sprintf("wrote %s, read %s", text, now.Data["count"]))
			}
		} else {
			client = p.client() // a moved address leaves stale connections
		}

		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

func writeProbe(ctx context.Context, client kubernetes.Interface, text string) error {
	_, err := client.CoreV1().ConfigMaps("default").Update(ctx, &corev1.ConfigMap{
		ObjectMeta: objectMeta(probeName, "default"), Data: map[string]string{"count": text},
	}, metav1.UpdateOptions{})

	return err
}

// finish stops the probe.
func (p *apiProbe) finish() {
	p.stop()
	p.stopped.Wait()

	p.gap = max(p.gap, time.Since(p.lastAnswer))
}

// report stops the probe, and checks that no write was lost. How long the API was unavailable depends on the machine
// that runs the test: report prints it, and [TestSoak] judges it.
func (p *apiProbe) report() {
	p.t.Helper()
	p.finish()
	p.t.Logf("the API was unavailable for %s at most, over %d writes", p.gap.Round(time.Millisecond), p.writes)
	assert.Positive(p.t, p.writes)
	assert.Empty(p.t, p.lostWrites)
}

// requireHealth runs `talosctl health` on cluster one.
func (w *world) requireHealth(t *testing.T) {
	t.Helper()

	talosctl, err := filepath.Abs(filepath.Join(project, ".bin", "talosctl"))
	require.NoError(t, err)

	config := filepath.Join(w.dir, "talosconfig")
	require.NoError(t, os.WriteFile(config, []byte(w.talosconfig()), 0o600))

	out, err := exec.CommandContext(t.Context(), talosctl, "--talosconfig", config, "--nodes", w.network+".1.10",
		"health", "--wait-timeout", "2m").CombinedOutput()
	require.NoError(t, err, string(out))
}
