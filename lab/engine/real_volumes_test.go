package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRealRestoreNamesTheVolumesThatItDeletes: the only control plane has its etcd on EPHEMERAL, with volumes of pods,
// one of which was made after the snapshot. A restore names them, and touches nothing until the user does as well.
func TestRealRestoreNamesTheVolumesThatItDeletes(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	d := newDrill(t, w)

	s := w.stack(1, 1)
	s.Clusters[0].VIP = 0
	file := strings.Replace(d.withBackups(s.yaml(t)), "      network:\n", "      patches:\n        - "+
		`"{apiVersion: v1alpha1, kind: UserVolumeConfig, name: local, volumeType: directory}"`+"\n      network:\n", 1)
	w.up(file)
	w.createLocalVolume("before", "one-cp-1")

	snapshot := d.backUp()

	w.createLocalVolume("after", "one-cp-1")
	w.createLocalVolume("elsewhere", "one-general-1")

	boots := w.bootTimes()
	restore := func(more ...string) (string, error) {
		return w.runCommand(append([]string{
			"restore", w.options.Stack, snapshot, "--identities", d.keyFile(d.etcdKey), "--confirm", "one",
		}, more...)...)
	}

	out, err := restore()
	require.Error(t, err)
	assert.Contains(t, out, "etcd of cluster one is healthy")
	assert.Contains(t, out, "repeat with --replace-healthy")

	out, err = restore("--replace-healthy")
	require.Error(t, err)
	assert.Contains(t, out, "  one-cp-1/local: a user volume, which is a directory\n")
	assert.Contains(t, out, "  one-cp-1/before: the volume of claim default/before, at /var/mnt/local/before\n")
	assert.Contains(t, out, "--lose-volumes one-cp-1/before,one-cp-1/local")
	assert.NotContains(t, out, "its data is saved")

	out, err = restore("--replace-healthy", "--lose-volumes", "one-cp-1/before,one-cp-1/local")
	require.Error(t, err)
	assert.Contains(t, out, "  one-cp-1/after: the volume of claim default/after, at /var/mnt/local/after\n")
	assert.NotContains(t, out, "elsewhere")
	assert.Equal(t, boots, w.bootTimes(), "nothing was touched")

	out, err = restore("--replace-healthy", "--lose-volumes", "one-cp-1/before,one-cp-1/local,one-cp-1/after")
	require.NoError(t, err, out)
	assert.Contains(t, out, "one-cp-1: etcd: wiping its data and rebooting")

	w.up(file, optup.Refresh())
	w.requireMembers(1)

	client := w.kubeClient()
	_, err = client.CoreV1().ConfigMaps("default").Get(t.Context(), drillName, metav1.GetOptions{})
	require.NoError(t, err)

	volumes, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, volumes.Items, 1)
	assert.Equal(t, "before", volumes.Items[0].Name)
}

// createLocalVolume creates a volume of a claim, as local-path-provisioner does.
func (w *world) createLocalVolume(name, node string) {
	w.t.Helper()

	_, err := w.kubeClient().CoreV1().PersistentVolumes().Create(w.t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:    &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: "/var/mnt/local/" + name},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				}}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}
