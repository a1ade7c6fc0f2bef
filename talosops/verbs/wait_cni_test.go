package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
)

// TestGateWaitsForTheNetworkOfPods names what a CNI misses, and opens when nothing is.
func TestGateWaitsForTheNetworkOfPods(t *testing.T) {
	t.Parallel()

	whole := kube.Rollout{There: true, Wanted: 3, Updated: 3, Ready: 3}

	for name, test := range map[string]struct {
		network kube.PodNetwork
		ready   bool
		want    []string
	}{
		"nothing is there": {kube.PodNetwork{}, false, []string{
			"cp-1: node: is not Ready: cni plugin not initialized", "kube-system: DaemonSet cilium: is not there",
			"kube-system: Deployment coredns: is not there", "kube-system: release cilium: is not deployed: run the same again",
		}},
		"a rollout is under way": {kube.PodNetwork{
			Released: true, Agents: kube.Rollout{There: true, Stale: true, Wanted: 3, Updated: 3, Ready: 3},
			DNS: kube.Rollout{There: true, Wanted: 2, Updated: 2, Ready: 1},
		}, true, []string{
			"kube-system: DaemonSet cilium: is being rolled out", "kube-system: Deployment coredns: has 1 of 2 pods ready",
		}},
		"all is there": {kube.PodNetwork{Released: true, Agents: whole, DNS: whole}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			g, cluster, _ := testGate(func(r *waitRequest, _ *clustertest.Fake) { r.CNI = "cilium" })
			cluster.Network = test.network

			for i := range cluster.NodeList {
				cluster.NodeList[i].Ready, cluster.NodeList[i].Waits = test.ready, "cni plugin not initialized"
			}

			var lines []string
			for _, f := range g.round(t.Context()).Open() {
				lines = append(lines, f.Line())
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

	k, address := clustertest.ServeKubernetes(t, clustertest.NewAPI(map[string]string{
		"/api/v1/namespaces/kube-system/secrets/sh.helm.release.v1.cilium.v2": `{"kind":"Secret","apiVersion":"v1","metadata":{
			"labels":{"owner":"helm","status":"deployed","name":"cilium"}}}`,
		"/apis/apps/v1/namespaces/kube-system/daemonsets/cilium": `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"generation":2},
			"status":{"observedGeneration":2,"desiredNumberScheduled":3,"updatedNumberScheduled":2,"numberReady":3}}`,
	}))
	found, err := k.PodNetwork(t.Context(), address, "cilium")
	require.NoError(t, err)
	assert.Equal(t, kube.PodNetwork{Released: true, Agents: kube.Rollout{There: true, Wanted: 3, Updated: 2, Ready: 3}}, found)
	assert.Equal(t, "is being rolled out: 2 of 3 pods are of its newest revision", behind(found.Agents))
}
