package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// taintsOf returns a node's taints except those of its condition, as kubectl writes them.
func taintsOf(t *testing.T, client kubernetes.Interface, node string) []string {
	t.Helper()

	found, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)

	taints := []string{}

	for _, taint := range found.Spec.Taints {
		if text := taint.ToString(); !strings.HasPrefix(text, "node.kubernetes.io/") {
			taints = append(taints, text)
		}
	}

	return taints
}

// labelsOf returns a node's labels except those of Kubernetes and Talos.
func labelsOf(t *testing.T, client kubernetes.Interface, node string) map[string]string {
	t.Helper()

	found, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)

	labels := map[string]string{}

	for key, value := range found.Labels {
		if !strings.Contains(key, "kubernetes.io/") && !strings.HasPrefix(key, "extensions.talos.dev/") {
			labels[key] = value
		}
	}

	return labels
}

// TestLabelsAndTaints: a GPU worker has its labels and taint from the start, and follows the stack file while it runs;
// other labels and taints stay.
func TestLabelsAndTaints(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	s := gpuStack{
		Network:      w.network,
		Workers:      1,
		ControlPlane: ", hosts: [pve2], taints: [\"etcd=only:NoSchedule\"], labels: {node-role.kubernetes.io/etcd: \"\"}",
	}
	w.up(s.yaml(t))
	client := w.kubeClient()
	gpu := map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/device-plugin.config": "exclusive"}

	assert.NotContains(t, w.output(), " set", "they registered with them")
	assert.Equal(t, []string{"nvidia.com/gpu=present:NoSchedule"}, taintsOf(t, client, "one-gpu-1"))
	assert.Equal(t, gpu, labelsOf(t, client, "one-gpu-1"))
	assert.Equal(t, []string{"etcd=only:NoSchedule"}, taintsOf(t, client, "one-cp-1"))

	controlPlane, err := client.CoreV1().Nodes().Get(t.Context(), "one-cp-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Contains(t, controlPlane.Labels, "node-role.kubernetes.io/etcd")

	// Others label and taint the node, and its own taint and records are missing.
	_, err = client.CoreV1().Nodes().Patch(t.Context(), "one-gpu-1", types.MergePatchType, []byte(`{
		"metadata": {"labels": {"theirs": "1", "tier": "0"}, "annotations": {"talos-proxmox/labels": null, "talos-proxmox/taints": null}},
		"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)

	s.Labels, s.Taints = "{tier: a}", `["dedicated=ai:NoSchedule"]`
	done := w.up(s.yaml(t))
	assert.Equal(
		t, []string{"Command one-gpu-1-configuration", "Command one-healthy", "Command one-marked"},
		done.withOp("update"),
	)
	assert.Empty(t, vms(append(done.withOp("create"), done.withOp("replace")...)))
	assert.Contains(t, w.output(), "one-gpu-1: labels and taints: 1 label set, 2 taints set")
	assert.ElementsMatch(
		t, []string{"theirs:NoSchedule", "nvidia.com/gpu=present:NoSchedule", "dedicated=ai:NoSchedule"},
		taintsOf(t, client, "one-gpu-1"),
	)
	assert.Equal(t, map[string]string{
		"nvidia.com/gpu.present": "true", "nvidia.com/device-plugin.config": "exclusive", "tier": "a", "theirs": "1",
	}, labelsOf(t, client, "one-gpu-1"), "Talos leaves tier, which it does not own")

	done = w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, done)

	// Another value and another effect.
	s.Labels, s.Taints = "{tier: b}", `["dedicated=ai:NoExecute"]`
	w.up(s.yaml(t))
	assert.ElementsMatch(
		t, []string{"theirs:NoSchedule", "nvidia.com/gpu=present:NoSchedule", "dedicated=ai:NoExecute"},
		taintsOf(t, client, "one-gpu-1"),
	)
	assert.Equal(t, "b", labelsOf(t, client, "one-gpu-1")["tier"])

	// Removed ones are gone, on workers and control planes; those of others stay.
	s.Labels, s.Taints, s.ControlPlane = "", "", ""
	w.up(s.yaml(t))
	assert.ElementsMatch(
		t, []string{"theirs:NoSchedule", "nvidia.com/gpu=present:NoSchedule"}, taintsOf(t, client, "one-gpu-1"),
	)

	gpu["theirs"] = "1"
	assert.Equal(t, gpu, labelsOf(t, client, "one-gpu-1"))
	assert.Empty(t, taintsOf(t, client, "one-cp-1"))

	done = w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, done)

	w.destroy(s.yaml(t))
}
