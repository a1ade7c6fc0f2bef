package main

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestGateWaitsForTheNetworkOfPods names what a CNI misses, and opens when nothing is.
func TestGateWaitsForTheNetworkOfPods(t *testing.T) {
	t.Parallel()

	whole := rollout{there: true, wanted: 3, updated: 3, ready: 3}

	for name, test := range map[string]struct {
		network podNetwork
		ready   bool
		want    []string
	}{
		"nothing is there": {podNetwork{}, false, []string{
			"cp-1: node: is not Ready: cni plugin not initialized", "kube-system: DaemonSet cilium: is not there",
			"kube-system: Deployment coredns: is not there", "kube-system: release cilium: is not deployed: run the same again",
		}},
		"a rollout is under way": {podNetwork{
			released: true, agents: rollout{there: true, stale: true, wanted: 3, updated: 3, ready: 3},
			dns: rollout{there: true, wanted: 2, updated: 2, ready: 1},
		}, true, []string{
			"kube-system: DaemonSet cilium: is being rolled out", "kube-system: Deployment coredns: has 1 of 2 pods ready",
		}},
		"all is there": {podNetwork{released: true, agents: whole, dns: whole}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			req := testRequest()
			req.CNI = "cilium"
			cluster := healthyCluster(req.ControlPlanes, req.Workers)
			cluster.network = test.network

			for i := range cluster.nodesL {
				cluster.nodesL[i].Ready, cluster.nodesL[i].Waits = test.ready, "cni plugin not initialized"
			}

			g, _ := testGate(req, cluster, cluster)

			var lines []string
			for _, f := range g.round(t.Context()).open() {
				lines = append(lines, f.line())
			}

			for _, want := range test.want {
				assert.Condition(t, func() bool {
					for _, line := range lines {
						if len(line) >= len(want) && line[:len(want)] == want {
							return true
						}
					}

					return false
				}, "%s in %q", want, lines)
			}

			if test.want == nil {
				assert.Empty(t, lines)
				assert.Equal(t, "healthy: etcd members: 3; nodes: 5", g.summary())
			}
		})
	}
}

// TestPodNetwork reads what the API server says.
func TestPodNetwork(t *testing.T) {
	t.Parallel()

	answers := map[string]string{
		"/api/v1/namespaces/kube-system/secrets": `{"items": [{"metadata": {"name": "sh.helm.release.v1.cilium.v2"}}]}`,
		"/apis/apps/v1/namespaces/kube-system/daemonsets/cilium": `{"metadata": {"generation": 2}, "spec": {}, "status": {
			"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 2, "numberReady": 3}}`,
	}
	k, address := serveKubernetes(t, http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			text, is := answers[r.URL.Path]
			if selector := r.URL.Query().Get("labelSelector"); !is || selector != "" && selector != "owner=helm,status=deployed,name=cilium" {
				refuse(w, metav1.Status{
					Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "not found",
					Details: &metav1.StatusDetails{Name: "coredns"},
				})
			}

			_, _ = io.WriteString(w, text)
		}))
	found, err := k.podNetwork(t.Context(), address, "cilium")
	require.NoError(t, err)
	assert.Equal(t, podNetwork{released: true, agents: rollout{there: true, wanted: 3, updated: 2, ready: 3}}, found)
	assert.Equal(t, "is being rolled out: 2 of 3 pods are of its newest revision", behind(found.agents))
}
