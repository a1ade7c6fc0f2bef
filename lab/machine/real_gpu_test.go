package machine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gpuGate: the program's gate names the broken link between a driver and a node's GPUs, whatever Kubernetes reports. No
// CNI runs yet.
func gpuGate(l *lab, k kubectl) {
	kubeconfig, err := os.ReadFile(k.kubeconfig)
	require.NoError(l.T, err)

	const (
		offers = "get node node-22 -o jsonpath={.status.allocatable}"
		eight  = `"nvidia.com/gpu":"8"`
	)

	apply := func(manifest string) { // Talos applied them first
		out, err := k.try(manifest, "apply --server-side --force-conflicts -f -")
		require.NoError(l.T, err, out)
	}
	restore := func() {
		apply(strings.Join([]string{
			gpuManifests["namespace"], gpuManifests["class"], gpuManifests["config"], gpuManifests["plugin"],
		}, "---\n"))
		k.eventually(offers, eight)
	}

	restore()

	output, err := l.runGate(kubeconfig, 22, 8, "")
	require.NoError(l.T, err, output)
	assert.Contains(l.T, output, `"gpus":[{"node":"node-22","count":8}]`)

	plugin := func(old, changed string) func() {
		return func() { apply(strings.Replace(gpuManifests["plugin"], old, changed, 1)) }
	}

	for _, test := range []struct {
		name   string
		change func()
		says   string
	}{
		{
			"without a RuntimeClass", func() { k.run("delete runtimeclass nvidia") },
			`the cluster has no RuntimeClass "nvidia": create it`,
		},
		{
			"without the plugin's configuration", func() { k.run("-n gpu delete configmap plugin") },
			`does not run: ContainerCreating: MountVolume.SetUp failed for volume "config" : configmap "plugin" not found`,
		},
		{
			"in a namespace that Pod Security guards",
			func() { k.run("label namespace gpu pod-security.kubernetes.io/enforce-") },
			"has no pod on the node: Error creating: pods",
		},
		{
			"without the host's network", plugin("hostNetwork: true", "hostNetwork: false"),
			"does not run: ContainerCreating: network is not ready",
		},
		{
			"without tolerations", plugin("tolerations: [{operator: Exists}]", "tolerations: []"),
			"without a CNI it has to tolerate node.kubernetes.io/not-ready",
		},
		{
			"without a device plugin", func() { k.run("-n gpu delete daemonset plugin") },
			"the cluster has no NVIDIA device plugin: create its DaemonSet",
		},
	} {
		l.Run(test.name, func(t *testing.T) { //nolint:paralleltest // one world, one after another
			inner := *l
			inner.T = t

			test.change()
			k.run("-n gpu delete events --all") // of the test before
			k.run("-n gpu delete pods --all --grace-period=1 --ignore-not-found")
			inner.until("the node offers no GPU", func() bool { return !strings.Contains(k.run(offers), eight) })

			output, err := inner.runGate(kubeconfig, 22, 8, test.says)
			require.Error(t, err)
			assert.Contains(t, output, "node-22: GPU: ")
			assert.Contains(t, output, test.says)

			restore()
		})
	}
}
