package verbs

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

// markTwoWorkers labels w-1 and w-2, and returns the progress.
func markTwoWorkers(t *testing.T, f *clustertest.Fake, provider string) (string, error) {
	t.Helper()

	c, progress := clustertest.NewCluster(f, f)
	label := map[string]string{"tier": "db"}
	err := (&marker{Cluster: c, marks: []marks{
		{Node: "w-1", Labels: label, ProviderID: provider}, {Node: "w-2", Labels: label},
	}}).mark(t.Context())

	return progress.String(), err
}

func TestNodesAreMarkedAsTheyRegister(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, f, _ := clustertest.NewRunning()
		second := f.NodeList[4]
		f.NodeList, f.APIDown["127.0.9.1"] = f.NodeList[:4], errors.New("connection refused")
		f.After(10*time.Millisecond, func() { f.NodeList = append(f.NodeList, second) })

		progress, err := markTwoWorkers(t, f, "")
		require.NoError(t, err)
		assert.Equal(t, []string{"w-1 changed", "w-2 changed"}, f.Actions, "each node once, and no one else's")
		assert.ElementsMatch(t, []string{
			"w-1: labels and taints: 1 label set",
			"waits: w-2: labels and taints: its node is not registered",
			"w-2: labels and taints: 1 label set",
			"labels and taints of nodes are up to date: 2",
		}, strings.Split(strings.TrimSpace(progress), "\n"))
	})
}

func TestMarkTimesOut(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, change := range map[string]func(*clustertest.Fake){
		"a node that never comes": func(f *clustertest.Fake) { f.NodeList = f.NodeList[:4] },
		"no API that answers":     func(f *clustertest.Fake) { f.NodesErr = errors.New("three") },
		"another provider id":     func(f *clustertest.Fake) { f.NodeList[3].ProviderID = "proxmox://old/3000" },
		"a refusal":               func(f *clustertest.Fake) { f.PatchErr = errors.New("403 Forbidden: no") },
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			_, f, _ := clustertest.NewRunning()
			change(f)

			start := time.Now()
			_, err := markTwoWorkers(t, f, "proxmox://homelab/3000")
			golden.Equal(t, name, err)
			assert.Equal(t, time.Minute, time.Since(start))
		})
	}
}

// TestMarkTalksToTheKubernetesAPI compares the requests that the API server gets from the command.
func TestMarkTalksToTheKubernetesAPI(t *testing.T) {
	t.Parallel()

	api := clustertest.NewAPI(map[string]string{
		"/api/v1/nodes/w-1": `{"kind":"Node","apiVersion":"v1","metadata":{"name":"w-1","resourceVersion":"7"},
			"spec":{"taints":[{"key":"a","effect":"NoExecute","timeAdded":"2026-11-21T00:00:00Z"}]}}`,
	})
	api.Refuse = func(_ *http.Request, w clustertest.Write) *metav1.Status {
		if w.Method != http.MethodPatch || len(api.Writes) > 1 {
			return nil
		}

		return &metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict}
	}

	served := clustertest.Serve(t, &clustertest.TalosNode{}, api)
	stdout, stderr, err := run(t, "mark", request.Mark{
		Common: served.Common, Kubeconfig: served.Kubeconfig,
		Marks: []marks{{Node: "w-1", Taints: []taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}}}},
	}, verbtest.NoInterrupt, "--interval", "1ms")
	require.NoError(t, err, stderr)
	assert.Equal(t, `{"marked":["w-1"]}`+"\n", stdout)
	assert.Equal(t, "waits: w-1: labels and taints: the node changed in the meantime\nw-1: labels and taints: 1 taint set\n"+
		"labels and taints of nodes are up to date: 1\n", stderr)

	want := clustertest.Write{
		Method: http.MethodPatch, Path: "/api/v1/nodes/w-1", Type: "application/merge-patch+json",
		Body: `{"metadata":{"resourceVersion":"7","annotations":{"talos-proxmox/taints":"[\"dedicated:NoSchedule\"]"}},` +
			`"spec":{"taints":[{"key":"a","effect":"NoExecute","timeAdded":"2026-11-21T00:00:00Z"},` +
			`{"key":"dedicated","value":"db","effect":"NoSchedule"}]}}`,
	}
	assert.Equal(t, []clustertest.Write{want, want}, api.Writes)
}
