package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
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
	return strings.Replace(file, "kubernetesVersion: v1.37.2", "kubernetesVersion: "+version+
		"\n      patches: [\"cluster: {network: {cni: {name: flannel}}, proxy: {disabled: false}}\"]", 1)
}

// TestRealKubernetesUpgrade changes kubernetesVersion of a small cluster that runs by a minor version. TestRealReleases
// does so on a large one, under load, and has runs killed in the middle of it.
func TestRealKubernetesUpgrade(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}
	file := s.yaml(t)

	w.up(kubernetesAt(file, "v1.36.1"))
	w.requireReady(2)

	before := w.settings(s)
	w.requireKubernetes(s, "v1.36.1")
	w.up(kubernetesAt(file, "v1.36.1"), optup.ExpectNoChanges())

	said, began := len(w.said()), time.Now()
	done := w.up(kubernetesAt(file, "v1.37.1"))

	t.Logf("1.36 to 1.37, a control plane and a worker: %s", time.Since(began).Round(time.Second))
	w.requireHealth(t)
	assert.Equal(t, "update", done["Command one-kubernetes"])
	assert.Equal(t, "update", done["ConfigurationApply one-general-1-configuration"])

	for _, line := range []string{
		"Kubernetes: v1.36.1 → v1.37.1", "etcd: no snapshot is taken",
		"one-cp-1: pre-pull: pre-pulling registry.k8s.io/kube-apiserver:v1.37.1",
		"one-cp-1: kube-scheduler: successfully updated", "one-general-1: kubelet: successfully updated",
		"Kubernetes: v1.37.1 runs",
	} {
		assert.Contains(t, w.said()[said:], line)
	}

	w.requireKubernetes(s, "v1.37.1")
	// The library changes each image once; a configuration that is applied later and changes more would count as well.
	for node, version := range w.settings(s) {
		assert.Equal(t, before[node]+1, version, node)
	}

	w.up(kubernetesAt(file, "v1.37.1"), optup.ExpectNoChanges())
	assert.Equal(t, "v1.37.1", versionsOf(t, w.outputs(), "one")["kubernetes"])
	assert.Empty(t, versionsOf(t, w.outputs(), "one")["differences"])

	_, err := w.preview(kubernetesAt(file, "v1.36.1"))
	require.Error(t, err)
	assert.Contains(t, w.said(), `clusters[0].kubernetesVersion: "v1.36.1" is older, and Kubernetes is never downgraded; set v1.37.1, or a newer one`)

	// The worker is dead, and left out by being told.
	w.do(w.lab.Data.Stop(labRoot, w.hostOf(3000), 3000))
	w.requireReady(1)

	s.Clusters[0].Pins = `nodes: {"1": {skip: true}}`
	said = len(w.said())
	w.up(kubernetesAt(s.yaml(t), "v1.37.2"))
	assert.Contains(t, w.said()[said:], "kubelets: their upgrade would wait for what is skipped (one-general-1)")

	w.do(w.lab.Data.Start(labRoot, w.hostOf(3000), 3000))
	w.requireReady(2)
	w.up(kubernetesAt(file, "v1.37.2"))
	w.requireKubernetes(s, "v1.37.2")
}

// TestRealKubernetesUpgradeWithoutCNI has no node Ready before and after: kubelets follow with their configurations.
func TestRealKubernetesUpgradeWithoutCNI(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}
	file := s.yaml(t)

	w.up(strings.Replace(file, "v1.37.2", "v1.36.1", 1))

	said := len(w.said())
	w.up(file)
	assert.Contains(t, w.said()[said:], "kubelets: no node is Ready, as without a CNI")
	w.requireKubernetes(s, "v1.37.2")
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

// commands are the processes of a program that this world's runs have started; of these verbs, where some are named.
func (w *world) commands(program string, verbs ...string) []int {
	var found []int

	folders, err := filepath.Glob("/proc/[0-9]*/cwd")
	assert.NoError(w.t, err)

	for _, folder := range folders {
		if in, err := os.Readlink(folder); err != nil || in != filepath.Join(w.dir, "work") {
			continue
		}

		line, _ := os.ReadFile(filepath.Join(filepath.Dir(folder), "cmdline"))
		words := strings.Split(string(line), "\x00")

		if filepath.Base(words[0]) != program || len(verbs) > 0 && !slices.Contains(verbs, words[min(1, len(words)-1)]) {
			continue
		}

		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(folder))); err == nil {
			found = append(found, pid)
		}
	}

	return found
}

// killCommands kills a program's processes without a chance to clean up.
func (w *world) killCommands(program string, verbs ...string) {
	found := w.commands(program, verbs...)
	assert.NotEmpty(w.t, found, program)
	w.killAll(found)
}
