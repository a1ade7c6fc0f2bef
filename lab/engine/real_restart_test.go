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

// TestRealRestart: Talos 1.14 takes arguments of etcd over without any effect and without a restart. The program
// restarts the machine, drained; also where a run is killed in between.
func TestRealRestart(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}
	file := func(heartbeat string) string {
		return strings.Replace(s.yaml(t), "controlPlane: {count: 1,", `controlPlane: {count: 1, patches: ["cluster: {etcd: `+
			`{extraArgs: {heartbeat-interval: '`+heartbeat+`'}}}"],`, 1)
	}

	w.up(s.yaml(t))

	k := workloadOn(t, w)
	k.withCNI(2)

	said := w.since(func() { w.up(file("150")) })
	assert.Equal(t, []string{"one-cp-1"}, changedInTurn(t, said))
	assert.Contains(t, said, "because these take effect only then: cluster.etcd.extraArgs.heartbeat-interval")
	assert.Equal(t, 1, w.etcdWith("--heartbeat-interval=150"))
	assert.Empty(t, k.awaitRestart())
	assert.Equal(t, 2, k.ready())

	w.killed(file("200"), func(*world) bool { return len(k.awaitRestart()) > 0 }, true)
	w.recover()
	w.up(file("200"), optup.Refresh())
	assert.Equal(t, 1, w.etcdWith("--heartbeat-interval=200"))
	assert.Empty(t, k.awaitRestart())
	assert.Equal(t, 2, k.ready())
	w.requireMembers(1)
	w.requireHealth(t)
	w.up(file("200"), optup.Refresh(), optup.ExpectNoChanges())
}

// awaitRestart are the nodes that are noted to wait for a restart.
func (k workload) awaitRestart() (names []string) {
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

// etcdWith counts the members of etcd that run with an argument.
func (w *world) etcdWith(argument string) (count int) {
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
