package nodes_test

import (
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/nodes"
)

// TestRegistrationTaints: internal/app/machined/pkg/controllers/k8s/kubelet_spec.go of Talos 1.13, whose kubelet
// registers only the control plane's taint, and of 1.14.
func TestRegistrationTaints(t *testing.T) {
	t.Parallel()

	const taints = "  nodeTaints: {dedicated: 'gpu:NoSchedule', node-role.kubernetes.io/control-plane: ':NoExecute'}\n"

	for name, test := range map[string]struct {
		version, machine string
		want             []corev1.Taint
	}{
		"a worker of 1.13": {"v1.13.9", "machine:\n  type: worker\n" + taints, nil},
		"a worker of 1.14": {"v1.14.0", "machine:\n  type: worker\n" + taints, []corev1.Taint{
			{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
			{Key: constants.LabelNodeRoleControlPlane, Effect: corev1.TaintEffectNoExecute},
		}},
		"a control plane of 1.13": {"v1.13.9", "machine:\n  type: controlplane\n" + taints, []corev1.Taint{
			{Key: constants.LabelNodeRoleControlPlane, Effect: corev1.TaintEffectNoSchedule},
		}},
		"a control plane of 1.14": {"v1.14.0", "machine:\n  type: controlplane\n" + taints, []corev1.Taint{
			{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
			{Key: constants.LabelNodeRoleControlPlane, Effect: corev1.TaintEffectNoSchedule},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			release, err := talos.ReleaseOf(test.version)
			require.NoError(t, err)

			cfg, err := configloader.NewFromBytes([]byte(test.machine + "cluster: {}\n"))
			require.NoError(t, err)

			got, err := nodes.RegistrationTaints(cfg, release)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestTalosLiftsOnlyItsOwnCordon(t *testing.T) {
	t.Parallel()

	down := nodes.Desired{Cordoned: true}

	ours := &corev1.Node{}
	assert.True(t, down.Apply(ours))
	assert.True(t, ours.Spec.Unschedulable)
	assert.Contains(t, ours.Annotations, constants.AnnotationCordonedKey)
	assert.True(t, nodes.Desired{}.Apply(ours))
	assert.False(t, ours.Spec.Unschedulable)
	assert.NotContains(t, ours.Annotations, constants.AnnotationCordonedKey)

	others := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	assert.False(t, down.Apply(others))
	assert.False(t, nodes.Desired{}.Apply(others))
	assert.True(t, others.Spec.Unschedulable)
}

func TestTalosRemovesOnlyWhatItOwns(t *testing.T) {
	t.Parallel()

	taints := []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}
	before := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
	before.Labels = map[string]string{"theirs": "1", "same": "2"}

	node := before.DeepCopy()
	require.True(t, nodes.Desired{
		Labels: map[string]string{"theirs": "other", "same": "2", "new": "3"},
		Taints: []corev1.Taint{{Key: "new", Effect: corev1.TaintEffectNoExecute}},
	}.Apply(node))
	assert.Equal(t, map[string]string{"theirs": "1", "same": "2", "new": "3"}, node.Labels, "what is another's stays")
	assert.Len(t, node.Spec.Taints, 2)

	require.True(t, nodes.Desired{}.Apply(node))
	assert.Equal(t, map[string]string{"theirs": "1"}, node.Labels, "what Talos has taken over goes with the configuration")
	assert.Equal(t, taints, node.Spec.Taints)
	assert.False(t, nodes.Desired{}.Apply(node))
}

func TestNodeRestriction(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		label, taint, reason string
	}{
		"a label of its own":         {label: "example.org/a"},
		"a label meant for kubelets": {label: "node.kubernetes.io/a"},
		"a label of Kubernetes": {
			label:  "node-role.kubernetes.io/worker",
			reason: `nodes "a" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/worker`,
		},
		"a taint": {taint: "a", reason: `nodes "a" is forbidden: node "a" is not allowed to modify taints`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			before := &corev1.Node{}
			before.Name = "a"

			after := before.DeepCopy()
			if test.label != "" {
				after.Labels = map[string]string{test.label: ""}
			} else {
				after.Spec.Taints = []corev1.Taint{{Key: test.taint}}
			}

			assert.Equal(t, test.reason, nodes.Refusal(before, after))
		})
	}
}
