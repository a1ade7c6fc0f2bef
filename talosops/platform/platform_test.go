package platform

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/action"
	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/charts/chartstest"
)

func testChart() *chart.Chart {
	return &chart.Chart{
		Metadata:  &chart.Metadata{APIVersion: "v2", Name: "network", Version: "1.2.3"},
		Raw:       []*chartcommon.File{{Name: "values.yaml", Data: []byte("cgroup: {}\n")}}, // chartutil.Save writes Raw
		Templates: []*chartcommon.File{{Name: "templates/a.yaml", Data: []byte("a: {{ .Values.cgroup.b }}\n")}},
	}
}

// TestChartOfARegistry: without a digest, the actual one is printed, for the stack file. Another digest, and values
// that the chart does not have, are refused before anything is changed.
func TestChartOfARegistry(t *testing.T) {
	t.Parallel()

	address, digests := chartstest.Registry(t, testChart())
	fetch := func(digest string, values map[string]any) (string, error) {
		var progress bytes.Buffer

		r := &releaser{values: values, progress: &progress, req: Release{HelmRelease: request.HelmRelease{
			Name: "network", Namespace: "kube-system", Chart: address + "/network", Version: "1.2.3", Digest: digest,
		}}}

		err := r.explain(t.Context(), r.fetch(t.Context()))

		return progress.String(), err
	}

	output, err := fetch("", nil)
	require.NoError(t, err)
	assert.Equal(t, "the chart "+address+"/network 1.2.3 has the digest "+digests[0]+
		": set it, so that no other chart is accepted\n", output)

	output, err = fetch(digests[0], map[string]any{"cgroup": map[string]any{"b": 1}})
	require.NoError(t, err)
	assert.Empty(t, output)

	_, err = fetch("sha256:"+strings.Repeat("0", 64), nil)
	require.EqualError(t, err, "the chart "+address+"/network has the digest "+digests[0]+", not sha256:"+
		strings.Repeat("0", 64)+": it is not what was meant: find out why, then set the digest of what you trust; "+
		"nothing was changed")

	_, err = fetch("", map[string]any{"cgruop": 1, "nonsense": 1})
	require.EqualError(t, err, "the chart network 1.2.3 does not have these values, and would ignore them; nothing was "+
		"changed:\n  cgruop: write cgroup\n  nonsense: remove it")
}

// TestIsUpToDate compares chart and values with a record that was encoded and decoded.
func TestIsUpToDate(t *testing.T) {
	t.Parallel()

	archive, err := chartutil.Save(testChart(), t.TempDir())
	require.NoError(t, err)

	wanted, _, err := fetcher.Chart(t.Context(), archive, "1.2.3", "")
	require.NoError(t, err)

	text, err := json.Marshal(&releasev1.Release{
		Chart: wanted, Config: map[string]any{"a": 1, "b": map[string]any{"c": true}},
	})
	require.NoError(t, err)

	var record releasev1.Release
	require.NoError(t, json.Unmarshal(text, &record))

	for name, test := range map[string]struct {
		values map[string]any
		want   bool
	}{
		"equal":        {map[string]any{"a": 1.0, "b": map[string]any{"c": true}}, true},
		"other values": {map[string]any{"a": 2.0, "b": map[string]any{"c": true}}, false},
		"none":         {nil, false},
	} {
		r := &releaser{chart: wanted, values: test.values}
		upToDate, err := r.isUpToDate(&record)
		require.NoError(t, err, name)
		assert.Equal(t, test.want, upToDate, name)
	}

	other := *wanted
	other.Templates = nil
	upToDate, err := (&releaser{chart: &other, values: record.Config}).isUpToDate(&record)
	require.NoError(t, err)
	assert.False(t, upToDate, "another chart of the same version")
}

// TestResume resumes a revision of an interrupted run of this program, and refuses another program's.
func TestResume(t *testing.T) {
	t.Parallel()

	pending := func(revision int, label string) (*action.Configuration, *releasev1.Release) {
		record := &releasev1.Release{
			Name: "network", Namespace: "kube-system", Version: revision, Chart: testChart(),
			Info: &releasev1.Info{Status: common.StatusPendingUpgrade}, Labels: map[string]string{revisionLabel: label},
		}
		memory := driver.NewMemory()
		memory.SetNamespace("kube-system")
		cfg := &action.Configuration{Releases: storage.Init(memory)}
		require.NoError(t, cfg.Releases.Create(record))

		return cfg, record
	}
	r := &releaser{
		req:      Release{HelmRelease: request.HelmRelease{Name: "network", Namespace: "kube-system"}},
		progress: &bytes.Buffer{},
	}

	cfg, record := pending(3, "3")
	require.NoError(t, r.resume(cfg, record))

	newest, err := r.newestRevision(cfg)
	require.NoError(t, err)
	assert.Equal(t, common.StatusFailed, newest.Info.Status)

	cfg, record = pending(4, "3") // Helm copied the label
	require.ErrorContains(t, r.resume(cfg, record), "revision 4 is pending-upgrade since ")
	require.ErrorContains(t, r.resume(cfg, record), "by another program: wait until it has finished, or, if it is gone, run "+
		"`helm --namespace kube-system rollback network`")
}

// TestManifestOwner reads the owner from the labels of a release's objects.
func TestManifestOwner(t *testing.T) {
	t.Parallel()

	owner, err := manifestOwner(&releasev1.Release{Manifest: "kind: ConfigMap\nmetadata:\n  name: a\n---\n" +
		"kind: ConfigMap\nmetadata:\n  name: b\n  labels: {helm.toolkit.fluxcd.io/name: cilium, helm.toolkit.fluxcd.io/namespace: flux-system}\n"})
	require.NoError(t, err)
	assert.Equal(t, "HelmRelease flux-system/cilium", owner)
}

// TestPodProblem names the reason why a pod does not run.
func TestPodProblem(t *testing.T) {
	t.Parallel()

	ended := &corev1.ContainerStateTerminated{ExitCode: 1, Message: "a\nunable to reach the API\n"}

	for name, test := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"runs": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a", Ready: true}}}, ""},
		"crashes": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
			LastTerminationState: corev1.ContainerState{Terminated: ended},
		}}}, "agent: CrashLoopBackOff: exit status 1: unable to reach the API"},
		"an image": {corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "config", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
		}}}, "config: ImagePullBackOff: no such image"},
		"no node": {corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available",
		}}}, "0/3 nodes are available"},
	} {
		assert.Equal(t, test.want, podProblem(corev1.Pod{Status: test.status}), name)
	}
}
