package engine_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRealRestart: Talos 1.14 accepts new arguments of etcd without an effect or a restart. The program restarts the
// machine, drained, even if a run is killed in between.
func TestRealRestart(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := w.stack(1, 1)
	file := func(heartbeat string) string {
		return strings.Replace(s.yaml(t), "controlPlane: {count: 1,", `controlPlane: {count: 1, patches: ["cluster: {etcd: `+
			`{extraArgs: {heartbeat-interval: '`+heartbeat+`'}}}"],`, 1)
	}

	w.up(s.yaml(t))

	k := newWorkload(t, w)
	k.withCNI(2)

	output := w.outputOf(func() { w.up(file("150")) })
	assert.Equal(t, []string{"one-cp-1"}, changedInTurn(t, output))
	assert.Contains(t, output, "because these take effect only then: cluster.etcd.extraArgs.heartbeat-interval")
	assert.Equal(t, 1, w.etcdProcessesWith("--heartbeat-interval=150"))
	assert.Empty(t, k.nodesAwaitingRestart())
	assert.Equal(t, 2, k.readyNodes())

	w.killedUp(file("200"), func(*world) bool { return len(k.nodesAwaitingRestart()) > 0 }, true)
	w.recover()
	w.up(file("200"), optup.Refresh())
	assert.Equal(t, 1, w.etcdProcessesWith("--heartbeat-interval=200"))
	assert.Empty(t, k.nodesAwaitingRestart())
	assert.Equal(t, 2, k.readyNodes())
	w.requireMembers(1)
	w.requireHealth(t)
	w.up(file("200"), optup.Refresh(), optup.ExpectNoChanges())
}

// nodesAwaitingRestart returns the nodes that are annotated to wait for a restart.
func (k workload) nodesAwaitingRestart() (names []string) {
	nodes, err := k.client.CoreV1().Nodes().List(k.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}

	for _, n := range nodes.Items {
		if n.Annotations["talos-proxmox/restart"] != "" {
			names = append(names, n.Name)
		}
	}

	return names
}

// etcdProcessesWith counts the members of etcd that run with an argument.
func (w *world) etcdProcessesWith(argument string) (count int) {
	w.t.Helper()

	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(w.t, err)

	for _, path := range lines {
		line, _ := os.ReadFile(path) //nolint:gosec // of a process
		if bytes.Contains(line, []byte(argument)) && bytes.Contains(line, []byte(w.network+".")) {
			count++
		}
	}

	return count
}
