package engine_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// withKubernetesVersion returns a stack file with another version of Kubernetes, Talos' own CNI and kube-proxy.
func withKubernetesVersion(file, version string) string {
	file = strings.Replace(file, "kubernetesVersion: v1.37.2", "kubernetesVersion: "+version, 1)

	return strings.Replace(file, "controlPlane: {", "controlPlane: {patches: ["+
		"\"{apiVersion: v1alpha1, kind: KubeFlannelCNIConfig, backendType: vxlan}\", "+
		"\"{apiVersion: v1alpha1, kind: KubeProxyConfig, enabled: true}\"], ", 1)
}

// TestRealKubernetesUpgrade upgrades a small running cluster by a minor version. TestRealReleases does so on a large
// one, under load and with killed runs.
func TestRealKubernetesUpgrade(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := w.stack(1, 1)
	file := s.yaml(t)

	w.up(withKubernetesVersion(file, "v1.36.1"))
	w.waitReady(2)

	before := w.apiServerConfigVersions(s)
	w.requireKubernetes(s, "v1.36.1")
	w.up(withKubernetesVersion(file, "v1.36.1"), optup.ExpectNoChanges())

	var done steps

	began := time.Now()
	output := w.outputOf(func() { done = w.up(withKubernetesVersion(file, "v1.37.1")) })

	t.Logf("1.36 to 1.37, a control plane and a worker: %s", time.Since(began).Round(time.Second))
	w.requireHealth(t)
	assert.Equal(t, "update", done["Command one-kubernetes"])
	assert.Equal(t, "update", done["Command one-general-1-configuration"])

	for _, line := range []string{
		"Kubernetes: v1.36.1 → v1.37.1", "etcd: no snapshot is taken",
		"one-cp-1: pre-pull: pre-pulling registry.k8s.io/kube-apiserver:v1.37.1",
		"one-cp-1: kube-scheduler: successfully updated", "one-general-1: kubelet: successfully updated",
		"Kubernetes: v1.37.1 runs",
	} {
		assert.Contains(t, output, line)
	}

	w.requireKubernetes(s, "v1.37.1")
	// The library changes each image once; a configuration that is applied later and changes more would count as well.
	for node, version := range w.apiServerConfigVersions(s) {
		assert.Equal(t, before[node]+1, version, node)
	}

	w.up(withKubernetesVersion(file, "v1.37.1"), optup.ExpectNoChanges())
	assert.Equal(t, "v1.37.1", w.versions()["kubernetes"])
	assert.Empty(t, w.versions()["differences"])

	_, err := w.preview(withKubernetesVersion(file, "v1.36.1"))
	require.Error(t, err)
	assert.Contains(t, w.output(), `clusters[0].kubernetesVersion: "v1.36.1" is older, and Kubernetes is never downgraded; set v1.37.1, or a newer one`)

	// The worker is dead, and the stack file skips it.
	w.stopVM(3000)
	w.waitReady(1)

	s.Clusters[0].WorkerYAML = `nodes: {"1": {skip: true}}`
	output = w.outputOf(func() { w.up(withKubernetesVersion(s.yaml(t), "v1.37.2")) })
	assert.Contains(t, output, "kubelets: their upgrade would wait for what is skipped (one-general-1)")

	w.startVM(3000)
	w.waitReady(2)
	w.up(withKubernetesVersion(file, "v1.37.2"))
	w.requireKubernetes(s, "v1.37.2")
}

// TestRealKubernetesUpgradeWithoutCNI has no node Ready before and after: kubelets follow with their configurations.
func TestRealKubernetesUpgradeWithoutCNI(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := w.stack(1, 1)
	file := s.yaml(t)

	w.up(strings.Replace(file, "v1.37.2", "v1.36.1", 1))

	output := w.outputOf(func() { w.up(file) })
	assert.Contains(t, output, "kubelets: no node is Ready, as without a CNI")
	w.requireKubernetes(s, "v1.37.2")
	w.up(file, optup.ExpectNoChanges())
}

// waitReady waits for nodes, which are Ready once their CNI runs.
func (w *world) waitReady(count int) {
	w.t.Helper()

	client := w.kubeClient()

	require.Eventually(w.t, func() bool {
		nodes, err := client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}

		ready := 0

		for _, n := range nodes.Items {
			if nodeIsReady(n) {
				ready++
			}
		}

		return ready == count
	}, within, 200*time.Millisecond, "%d nodes are Ready", count)
}

// apiServerConfigVersions returns the resource version of each API server's configuration, by node: how often it has
// changed.
func (w *world) apiServerConfigVersions(s stack) map[string]int {
	w.t.Helper()

	versions := map[string]int{}

	for _, n := range w.plan(s).Clusters[0].ControlPlanes {
		w.withTalosClient(n.Address.Addr().String(), func(ctx context.Context, c *talosclient.Client) {
			at := k8s.NewAPIServerConfig(k8s.APIServerConfigID).Metadata()

			found, err := safe.StateGet[*k8s.APIServerConfig](ctx, c.COSI, at)
			require.NoError(w.t, err)

			version, err := strconv.Atoi(found.Metadata().Version().String())
			require.NoError(w.t, err)

			versions[n.Name] = version
		})
	}

	return versions
}

// requireKubernetes checks that all components of a cluster run a version.
func (w *world) requireKubernetes(s stack, version string) {
	w.t.Helper()

	client := w.kubeClient()

	served, err := client.Discovery().ServerVersion()
	require.NoError(w.t, err)
	assert.Equal(w.t, version, served.GitVersion)

	nodes, err := client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)

	for _, n := range nodes.Items {
		assert.Equal(w.t, version, n.Status.NodeInfo.KubeletVersion, n.Name)
		assert.False(w.t, n.Spec.Unschedulable, n.Name)
	}

	pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)

	parts := map[string]int{}

	for _, p := range pods.Items {
		if part := p.Labels["k8s-app"]; strings.HasPrefix(part, "kube-") && part != "kube-dns" {
			parts[part]++

			assert.Contains(w.t, p.Spec.Containers[0].Image, ":"+version, p.Name)
		}
	}

	for _, part := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		assert.Equal(w.t, len(w.plan(s).Clusters[0].ControlPlanes), parts[part], part)
	}
}
