package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/stacks"
)

// kubernetesAt is a stack of a cluster with another version of Kubernetes, Talos' own CNI and kube-proxy.
func kubernetesAt(file, version string) string {
	return strings.Replace(file, "kubernetesVersion: v1.35.0", "kubernetesVersion: "+version+
		"\n      patches: [\"cluster: {network: {cni: {name: flannel}}, proxy: {disabled: false}}\"]", 1)
}

// TestRealKubernetesUpgrade changes kubernetesVersion of a cluster that runs: one minor version, then a patch in a run
// that is killed.
func TestRealKubernetesUpgrade(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := stack{Network: w.network, Clusters: []cluster{one(3, 2)}}
	file := s.yaml(t)

	w.up(kubernetesAt(file, "v1.34.3"))
	w.requireReady(5)

	before := w.settings(s)
	w.requireKubernetes(s, "v1.34.3")
	w.up(kubernetesAt(file, "v1.34.3"), optup.ExpectNoChanges())

	said, began := len(w.said()), time.Now()
	users := w.patrols(t)
	done := w.up(kubernetesAt(file, "v1.35.2"))

	t.Logf("1.34 to 1.35, three control planes and two workers: %s", time.Since(began).Round(time.Second))
	users.report()
	w.requireHealth(t)
	assert.Equal(t, "update", done["Command one-kubernetes"])
	assert.Equal(t, "update", done["ConfigurationApply one-general-2-configuration"])

	for _, line := range []string{
		"Kubernetes: v1.34.3 → v1.35.2", "etcd: no snapshot is taken",
		"one-cp-1: pre-pull: pre-pulling registry.k8s.io/kube-apiserver:v1.35.2",
		"one-cp-3: kube-scheduler: successfully updated", "one-general-2: kubelet: successfully updated",
		"Kubernetes: v1.35.2 runs",
	} {
		assert.Contains(t, w.said()[said:], line)
	}

	w.requireKubernetes(s, "v1.35.2")
	// The library changes each image once; a configuration that is applied later and changes more would count as well.
	for node, version := range w.settings(s) {
		assert.Equal(t, before[node]+1, version, node)
	}

	w.up(kubernetesAt(file, "v1.35.2"), optup.ExpectNoChanges())
	assert.Equal(t, "v1.35.2", versionsOf(t, w.outputs(), "one")["kubernetes"])
	assert.Empty(t, versionsOf(t, w.outputs(), "one")["differences"])

	_, err := w.preview(kubernetesAt(file, "v1.34.3"))
	require.Error(t, err)
	assert.Contains(t, w.said(), `clusters[0].kubernetesVersion: "v1.34.3" is older, and Kubernetes is never downgraded; set v1.35.2, or a newer one`)

	said = len(w.said())
	w.killed(kubernetesAt(file, "v1.35.4"), func(w *world) bool {
		if !strings.Contains(w.said()[said:], "one-cp-2: kube-apiserver: ") {
			return false
		}

		w.killCommands("talosops")

		return true
	}, true)
	require.Eventually(t, func() bool { return len(w.commands("kubeupgrade")) == 0 }, within, 100*time.Millisecond,
		"it ends with whoever called it")
	w.recover()

	said = len(w.said())
	w.up(kubernetesAt(file, "v1.35.4"), optup.Refresh())
	assert.Contains(t, w.said()[said:], "Kubernetes: v1.35.2 → v1.35.4")
	w.requireKubernetes(s, "v1.35.4")
	w.up(kubernetesAt(file, "v1.35.4"), optup.ExpectNoChanges())
}

// TestRealKubernetesUpgradeWithoutCNI has no node Ready before and after: kubelets follow with their configurations.
func TestRealKubernetesUpgradeWithoutCNI(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}
	file := s.yaml(t)

	w.up(strings.Replace(file, "v1.35.0", "v1.34.3", 1))

	said := len(w.said())
	w.up(file)
	assert.Contains(t, w.said()[said:], "kubelets: no node is Ready, as without a CNI")
	w.requireKubernetes(s, "v1.35.0")
	w.up(file, optup.ExpectNoChanges())
}

// requireReady waits for nodes, which are Ready once their CNI runs.
func (w *world) requireReady(count int) {
	w.t.Helper()

	client := kubernetesOf(w.t.(*testing.T), w.outputs())

	require.Eventually(w.t, func() bool {
		nodes, err := client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}

		ready := 0

		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}

		return ready == count
	}, within, 200*time.Millisecond, "%d nodes are Ready", count)
}

// talosOn does something with a node's own Talos API.
func (w *world) talosOn(address string, do func(ctx context.Context, c *talosclient.Client)) {
	w.t.Helper()

	c := w.talosAt(output(w.t.(*testing.T), w.outputs(), stacks.Talosconfigs, "one"), address)
	do(w.t.Context(), c)
	require.NoError(w.t, c.Close())
}

// talosAt is a client of a node's own Talos API.
func (w *world) talosAt(talosconfig, address string) *talosclient.Client {
	w.t.Helper()

	config, err := clientconfig.FromString(talosconfig)
	require.NoError(w.t, err)

	c, err := talosclient.New(w.t.Context(), talosclient.WithConfig(config), talosclient.WithEndpoints(address),
		talosclient.WithGRPCDialOptions(grpc.WithNoProxy()))
	require.NoError(w.t, err)

	return c
}

// settings count how often those of an API server changed, by node.
func (w *world) settings(s stack) map[string]int {
	w.t.Helper()

	versions := map[string]int{}

	for _, n := range w.plan(s).Clusters[0].ControlPlanes {
		w.talosOn(n.Address.Addr().String(), func(ctx context.Context, c *talosclient.Client) {
			found, err := safe.StateGet[*k8s.APIServerConfig](ctx, c.COSI, k8s.NewAPIServerConfig().Metadata())
			require.NoError(w.t, err)

			version, err := strconv.Atoi(found.Metadata().Version().String())
			require.NoError(w.t, err)

			versions[n.Name] = version
		})
	}

	return versions
}

// requireKubernetes checks that all parts of a cluster run a version.
func (w *world) requireKubernetes(s stack, version string) {
	w.t.Helper()

	client := kubernetesOf(w.t.(*testing.T), w.outputs())

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

// commands are the processes of a program that this world's runs have started.
func (w *world) commands(program string) []int {
	var found []int

	folders, err := filepath.Glob("/proc/[0-9]*/cwd")
	assert.NoError(w.t, err)

	for _, folder := range folders {
		if in, err := os.Readlink(folder); err != nil || in != filepath.Join(w.dir, "work") {
			continue
		}

		line, _ := os.ReadFile(filepath.Join(filepath.Dir(folder), "cmdline"))
		name, _, _ := strings.Cut(string(line), "\x00")

		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(folder))); err == nil && filepath.Base(name) == program {
			found = append(found, pid)
		}
	}

	return found
}

// killCommands kills a program's processes without a chance to clean up.
func (w *world) killCommands(program string) {
	found := w.commands(program)
	assert.NotEmpty(w.t, found, program)
	w.killAll(found)
}
