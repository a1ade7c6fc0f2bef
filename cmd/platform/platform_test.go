package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/internal/request"
)

func testChart() *chart.Chart {
	return &chart.Chart{
		Metadata: &chart.Metadata{
			APIVersion: "v2", Name: "network", Version: "1.2.3",
			Dependencies: []*chart.Dependency{{Name: "part", Alias: "other"}},
		},
		Values: map[string]any{
			"cgroup":       map[string]any{"autoMount": map[string]any{"enabled": true}},
			"annotations":  map[string]any{},
			"nodeSelector": map[string]any{"kubernetes.io/os": "linux"},
			"unset":        nil,
		},
		Templates: []*chartcommon.File{{Name: "templates/a.yaml", Data: []byte("a: {{ .Values.undeclared.b }}\n")}},
	}
}

// TestValuesThatTheChartDoesNotHave are refused with what was probably meant; maps for anything take anything.
func TestValuesThatTheChartDoesNotHave(t *testing.T) {
	t.Parallel()

	require.NoError(t, checkValues(testChart(), map[string]any{
		"annotations": map[string]any{"a": "b"}, "nodeSelector": map[string]any{"gpu": "yes"}, "unset": 1,
		"undeclared": map[string]any{"b": 1}, "global": map[string]any{}, "part": map[string]any{}, "other": map[string]any{},
		"cgroup": map[string]any{"hostRoot": "/sys/fs/cgroup"},
	}))

	err := checkValues(testChart(), map[string]any{
		"cgroup": map[string]any{"automount": map[string]any{"enabled": false}}, "cgruop": 1, "nonsense": 1,
	})
	require.EqualError(t, err, "the chart network 1.2.3 does not have these values, and would pass over them; nothing was "+
		"changed:\n  cgroup.automount: write cgroup.autoMount\n  cgruop: write cgroup\n  nonsense: remove it")
}

// TestFetchChart reads a chart from a file and over HTTP, and refuses one that is not what was meant.
func TestFetchChart(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	archive, err := chartutil.Save(testChart(), folder)
	require.NoError(t, err)

	content, err := os.ReadFile(archive) //nolint:gosec // test data
	require.NoError(t, err)

	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])

	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)

	for _, source := range []string{archive, "file://" + archive, server.URL + "/" + filepath.Base(archive)} {
		found, err := fetchChart(t.Context(), request.Release{HelmRelease: request.HelmRelease{
			Chart: source, Version: "1.2.3", Digest: digest,
		}})
		require.NoError(t, err, source)
		assert.Equal(t, "network", found.Name())
	}

	for name, test := range map[string]struct {
		release request.HelmRelease
		says    string
	}{
		"another digest": {
			request.HelmRelease{Chart: archive, Version: "1.2.3", Digest: "sha256:00"}, "has the digest " + digest + ", not sha256:00",
		},
		"another version": {request.HelmRelease{Chart: archive, Version: "1.2.4"}, "is network 1.2.3, not 1.2.4"},
		"no file":         {request.HelmRelease{Chart: archive + "z", Version: "1.2.3"}, "no such file or directory; nothing was changed"},
		"no scheme":       {request.HelmRelease{Chart: "ftp://a", Version: "1"}, "use oci://, https://, file:// or a path"},
	} {
		_, err := fetchChart(t.Context(), request.Release{HelmRelease: test.release})
		require.ErrorContains(t, err, test.says, name)
		require.ErrorContains(t, err, nothingChanged, name)
	}
}

// TestSame compares a record with what is wanted as Helm has kept it.
func TestSame(t *testing.T) {
	t.Parallel()

	archive, err := chartutil.Save(testChart(), t.TempDir())
	require.NoError(t, err)

	wanted, err := fetchChart(t.Context(), request.Release{
		HelmRelease: request.HelmRelease{Chart: archive, Version: "1.2.3"},
	})
	require.NoError(t, err)

	text, err := json.Marshal(&releasev1.Release{
		Chart: wanted, Config: map[string]any{"a": 1, "b": map[string]any{"c": true}},
	})
	require.NoError(t, err)

	var kept releasev1.Release
	require.NoError(t, json.Unmarshal(text, &kept))

	for name, test := range map[string]struct {
		values map[string]any
		want   bool
	}{
		"equal":        {map[string]any{"a": 1.0, "b": map[string]any{"c": true}}, true},
		"other values": {map[string]any{"a": 2.0, "b": map[string]any{"c": true}}, false},
		"none":         {nil, false},
	} {
		r := &releaser{chart: wanted, values: test.values}
		same, err := r.same(&kept)
		require.NoError(t, err, name)
		assert.Equal(t, test.want, same, name)
	}

	other := *wanted
	other.Templates = nil
	same, err := (&releaser{chart: &other, values: kept.Config}).same(&kept)
	require.NoError(t, err)
	assert.False(t, same, "another chart of the same version")
}

// TestResume takes over what an interrupted run of this program left, and nothing of another's.
func TestResume(t *testing.T) {
	t.Parallel()

	half := func(revision int, label string) (*action.Configuration, *releasev1.Release) {
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
		req:      request.Release{HelmRelease: request.HelmRelease{Name: "network", Namespace: "kube-system"}},
		progress: &bytes.Buffer{},
	}

	cfg, record := half(3, "3")
	require.NoError(t, r.resume(cfg, record))

	newest, err := r.newest(cfg)
	require.NoError(t, err)
	assert.Equal(t, common.StatusFailed, newest.Info.Status)

	cfg, record = half(4, "3") // Helm has copied the label
	require.ErrorContains(t, r.resume(cfg, record), "revision 4 is pending-upgrade since ")
	require.ErrorContains(t, r.resume(cfg, record), "by another program: wait until it has done, or, where it is gone, run "+
		"`helm --namespace kube-system rollback network`")
}

// TestWhoHasARelease reads what a HelmRelease makes, and what objects say.
func TestWhoHasARelease(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		spec      map[string]any
		name, in  string
		namespace string
	}{
		"all said":      {map[string]any{"releaseName": "cilium", "targetNamespace": "kube-system", "storageNamespace": "kube-system"}, "cilium", "kube-system", "flux-system"},
		"a target":      {map[string]any{"targetNamespace": "kube-system"}, "kube-system-cilium", "flux-system", "flux-system"},
		"nothing":       {map[string]any{}, "cilium", "kube-system", "kube-system"},
		"only the name": {map[string]any{"releaseName": "other"}, "other", "kube-system", "kube-system"},
	} {
		object := unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "cilium", "namespace": test.namespace}, "spec": test.spec,
		}}
		found, in := releaseOf(object)
		assert.Equal(t, [2]string{test.name, test.in}, [2]string{found, in}, name)
	}

	owner, err := labelledOwner(&releasev1.Release{Manifest: "kind: ConfigMap\nmetadata:\n  name: a\n---\n" +
		"kind: ConfigMap\nmetadata:\n  name: b\n  labels: {helm.toolkit.fluxcd.io/name: cilium, helm.toolkit.fluxcd.io/namespace: flux-system}\n"})
	require.NoError(t, err)
	assert.Equal(t, "HelmRelease flux-system/cilium", owner)
}

// TestTroubleOf says why a pod does not run.
func TestTroubleOf(t *testing.T) {
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
		assert.Equal(t, test.want, troubleOf(corev1.Pod{Status: test.status}), name)
	}
}
