package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
)

// TestGateWaitsForTheNetworkOfPods: the gate names what the CNI lacks, and passes when nothing is missing.
func TestGateWaitsForTheNetworkOfPods(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, test := range map[string]struct {
		network kube.PodNetwork
		ready   bool
	}{
		"nothing is there": {kube.PodNetwork{Agents: "is not there", DNS: "is not there"}, false},
		"a rollout is under way": {
			kube.PodNetwork{Released: true, DNS: "is being rolled out: Ready: 1/2"}, true,
		},
		"all is there": {kube.PodNetwork{Released: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			g, cluster, _ := newTestGate(func(r *waitRequest, _ *clustertest.Fake) { r.CNI = "cilium" })
			cluster.Network = test.network

			for i := range cluster.NodeList {
				cluster.NodeList[i].Ready, cluster.NodeList[i].ReadyMessage = test.ready, "cni plugin not initialized"
			}

			lines := []string{}
			for _, f := range g.round(t.Context()).Open() {
				lines = append(lines, f.String())
			}

			golden.Equal(t, name, lines, g.summary())
		})
	}
}

// TestPodNetwork reads the objects of an API server.
func TestPodNetwork(t *testing.T) {
	t.Parallel()

	k, address := clustertest.ServeKubernetes(t, clustertest.NewAPI(map[string]string{
		"/api/v1/namespaces/kube-system/secrets/sh.helm.release.v1.cilium.v2": `{"kind":"Secret","apiVersion":"v1","metadata":{
			"labels":{"owner":"helm","status":"deployed","name":"cilium"}}}`,
		"/apis/apps/v1/namespaces/kube-system/daemonsets/cilium": `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"generation":2},
			"status":{"observedGeneration":2,"desiredNumberScheduled":3,"currentNumberScheduled":3,"updatedNumberScheduled":2}}`,
	}))
	found, err := k.PodNetwork(t.Context(), address, "cilium")
	require.NoError(t, err)
	assert.Equal(t, kube.PodNetwork{
		Released: true, Agents: "is being rolled out: Updated: 2/3", DNS: "is not there",
	}, found)
}
