package machine_test

import (
	"fmt"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kubernetesVersion is a patch with the images of a version.
func kubernetesVersion(version string) string {
	return fmt.Sprintf("machine:\n  kubelet: {image: \"ghcr.io/siderolabs/kubelet:%[1]s\"}\ncluster:\n"+
		"  apiServer: {image: \"registry.k8s.io/kube-apiserver:%[1]s\"}\n"+
		"  controllerManager: {image: \"registry.k8s.io/kube-controller-manager:%[1]s\"}\n"+
		"  scheduler: {image: \"registry.k8s.io/kube-scheduler:%[1]s\"}\n  proxy: {image: \"registry.k8s.io/kube-proxy:%[1]s\"}\n", version)
}

// TestRealUpgrade lets talosctl upgrade Kubernetes by a minor, on three control planes and two workers.
func TestRealUpgrade(t *testing.T) {
	t.Parallel()

	l := realLab(t)
	c := l.talosctlTool()

	for _, n := range []int{11, 12, 13} {
		l.boot(n)
		l.apply(n, l.configuration(machinetype.TypeControlPlane, kubernetesVersion("v1.34.3")))
	}

	for _, n := range []int{21, 22} {
		l.boot(n)
		l.apply(
			n, l.configuration(machinetype.TypeWorker, "machine:\n  kubelet: {image: \"ghcr.io/siderolabs/kubelet:v1.34.3\"}\n"),
		)
	}

	require.NoError(t, l.answers(11).Bootstrap(l.context(), &machineapi.BootstrapRequest{}))

	for _, n := range []int{11, 12, 13, 21, 22} {
		l.ready(n)
	}

	l.soon("three members vote", func() bool { return len(l.voters(11)) == 3 })

	k := l.kubectl(11)
	assert.Contains(t, k.run("version"), "Server Version: v1.34.3")
	assert.Equal(t, 5, strings.Count(k.run("get nodes"), "v1.34.3"))
	k.becomes("get serviceaccount default -o name", "serviceaccount/default")
	k.run("create deployment web --image=example.org/web:v1")

	out := c.run(11, "upgrade-k8s --to 1.35.2")
	assert.Contains(t, out, "applied successfully", "kube-proxy's manifest has the new image")

	for _, n := range []int{11, 12, 13} {
		assert.Contains(t, k.run(fmt.Sprintf("version --server https://%s:6443", l.address(n))), "Server Version: v1.35.2")
		assert.Contains(t, c.run(n, "get apiserverconfigs -o yaml"), "kube-apiserver:v1.35.2")
	}

	assert.Equal(t, 5, strings.Count(k.run("get nodes"), "v1.35.2"))
	assert.Contains(
		t, k.run("-n kube-system get daemonset kube-proxy -o jsonpath={.spec.template.spec.containers[0].image}"), "v1.35.2",
	)
	k.run("rollout status deployment/web --timeout=2m")

	again := c.run(11, "upgrade-k8s --from 1.35.2 --to 1.35.2")
	assert.NotContains(t, again, "> update ")
	assert.NotContains(t, again, "applied successfully")
}
