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

// TestWhatANodeIsRegisteredWith: internal/app/machined/pkg/controllers/k8s/kubelet_spec.go of Talos 1.13, whose kubelet
// registers with the control plane's taint alone, and of 1.14.
func TestWhatANodeIsRegisteredWith(t *testing.T) {
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

func TestTalosLiftsItsOwnCordonOnly(t *testing.T) {
	t.Parallel()

	down := nodes.Wishes{Cordoned: true}

	ours := nodes.Marks{}.With(down)
	assert.True(t, ours.Unschedulable)
	assert.Contains(t, ours.Annotations, constants.AnnotationCordonedKey)
	assert.False(t, ours.With(nodes.Wishes{}).Unschedulable)
	assert.NotContains(t, ours.With(nodes.Wishes{}).Annotations, constants.AnnotationCordonedKey)

	others := nodes.Marks{Unschedulable: true}.With(down)
	assert.NotContains(t, others.Annotations, constants.AnnotationCordonedKey)
	assert.True(t, others.With(nodes.Wishes{}).Unschedulable)
}

func TestTalosRemovesWhatItOwnsOnly(t *testing.T) {
	t.Parallel()

	before := nodes.Marks{
		Labels: map[string]string{"theirs": "1", "same": "2"},
		Taints: []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}},
	}

	with := before.With(nodes.Wishes{
		Labels: map[string]string{"theirs": "other", "same": "2", "new": "3"},
		Taints: []corev1.Taint{{Key: "new", Effect: corev1.TaintEffectNoExecute}},
	})
	assert.Equal(t, map[string]string{"theirs": "1", "same": "2", "new": "3"}, with.Labels, "what is another's stays")
	assert.Len(t, with.Taints, 2)
	assert.Equal(t, map[string]string{"theirs": "1", "same": "2"}, before.Labels, "the node of before is untouched")

	without := with.With(nodes.Wishes{})
	assert.Equal(t, map[string]string{"theirs": "1"}, without.Labels, "what Talos has taken over goes with its wish")
	assert.Equal(t, before.Taints, without.Taints)
	assert.True(t, without.Same(without.With(nodes.Wishes{})))
}

func TestWhatNodeRestrictionRefuses(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name   string
		after  nodes.Marks
		reason string
	}{
		{"a label of its own", nodes.Marks{Labels: map[string]string{"example.org/a": "b"}}, ""},
		{"a label meant for kubelets", nodes.Marks{Labels: map[string]string{"node.kubernetes.io/a": "b"}}, ""},
		{
			"a label of Kubernetes",
			nodes.Marks{Labels: map[string]string{"node-role.kubernetes.io/worker": ""}},
			`nodes "a" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/worker`,
		},
		{
			"a taint",
			nodes.Marks{Taints: []corev1.Taint{{Key: "a"}}},
			`nodes "a" is forbidden: node "a" is not allowed to modify taints`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			assert.Equal(t, test.reason, nodes.Refusal("a", nodes.Marks{}, test.after))
		})
	}
}
