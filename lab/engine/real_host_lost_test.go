package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/operations"
	"talos-proxmox/lab/datacentre"
)

// TestRealHostIsLost is the drill: one of three hosts loses its power for good, with a control plane and a worker,
// while a client writes through the virtual IP. `replace --host` is killed once, and makes the cluster whole; then a
// worker dies, and `repair` replaces it. No write is lost, and no machine ever runs twice.
func TestRealHostIsLost(t *testing.T) {
	t.Parallel()

	o := realOptions(t)
	o.Hosts = 3
	w := openWorld(t, o)

	s := w.stack(3, 2)
	s.Clusters[0].WorkerYAML = "repair: {after: 1m}"
	lost := fmt.Sprintf("    - {name: pve2, address: %s.0.12}\n", w.network)
	file := strings.Replace(s.yaml(t), lost, lost+strings.NewReplacer("pve2", "pve3", ".12", ".13").Replace(lost), 1)
	w.up(file)

	k := newWorkload(t, w)
	k.withCNI(5)
	k.deploy("web", 2, 1)
	require.Equal(t, []string{"one-cp-2", "one-general-2"}, w.runningOn("pve2"))

	twins := w.watchTwins()
	users := w.probeAPI(t)
	began := time.Now()

	w.addFault(datacentre.Fault{NoPower: true, Host: "pve2"})

	require.Eventually(t, func() bool { // it may have to elect a leader
		report, _ := w.clusterStatus()

		return slices.ContainsFunc(report.Care.Lines(), func(line string) bool {
			return strings.HasPrefix(line, "pve2: the host is offline, with one-cp-2, one-general-2 on it; etcd of cluster one has its majority")
		})
	}, within, time.Second, "%s", w.output())
	t.Logf("status names the host after %s", time.Since(began).Round(time.Second))

	// The machines may still run, as far as anybody knows: a repair leaves them to a person.
	var r repaired

	require.Eventually(t, func() bool {
		r = w.repair(file)

		return r.of("one-general-2").Action == operations.RepairRefuse
	}, within, 5*time.Second, "%s", w.output())
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.of("one-general-2").Why, "talos-proxmox replace lab --host pve2")

	for _, vm := range w.lab.Data.VMs() { // `rm -r /etc/pve/nodes/pve2`
		if vm.Host == "pve2" {
			w.requireTask(w.lab.Data.DestroyVM(labRoot, vm.Host, vm.ID, nil))
		}
	}

	file = strings.Replace(file, lost, "", 1)
	decided := time.Now()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	w.when(ctx, func(w *world) bool { return w.machines()["one-cp-2"] != 0 }, func() { w.killEngine(true) })

	out, err := w.tryReplace(file, "--host", "pve2")
	require.Error(t, err, out)
	w.recover()

	out, err = w.tryReplace(file, "--host", "pve2")
	require.NoError(t, err, out)
	k.eventually(func() bool { return k.readyNodes() == 5 }, "nodes are Ready")
	w.requireMembers(3)
	t.Logf("the cluster is whole %s after the power cut, %s after the decision", time.Since(began).Round(time.Second),
		time.Since(decided).Round(time.Second))

	// A worker dies.
	died := time.Now()
	uid := k.nodeUID("one-general-1")

	w.stopVM(w.vm("one-general-1").ID)

	require.Eventually(t, func() bool {
		r = w.repair(file)

		return len(r.Repairs) > 0 && r.Repairs[0].Action == operations.RepairReplaced
	}, within, 5*time.Second, "%s", w.output())
	assert.Zero(t, r.status, r.output)
	k.eventually(func() bool { return k.readyNodes() == 5 }, "nodes are Ready")
	t.Logf("the dead worker is replaced after %s", time.Since(died).Round(time.Second))
	assert.NotEqual(t, uid, k.nodeUID("one-general-1"), "it is another node of the same name")

	users.report()
	k.requireLastWrite(users.writes)
	assert.Empty(t, twins())

	w.requireNodes("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1", "one-general-2")
	w.requireMembers(3)
	w.requireHealth(t)
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
}

// runningOn returns the names of the machines that run on a host, sorted.
func (w *world) runningOn(host string) (names []string) {
	for _, vm := range w.lab.Data.VMs() {
		if vm.Host == host && vm.Running {
			names = append(names, vm.Name)
		}
	}

	slices.Sort(names)

	return names
}

// watchTwins watches for machines that run more than once. The returned function ends that, and returns their names.
func (w *world) watchTwins() (end func() []string) {
	ctx, cancel := context.WithCancel(w.t.Context())

	var (
		watching sync.WaitGroup
		twins    []string
	)

	watching.Go(func() {
		for ctx.Err() == nil {
			running := map[string]int{}

			for _, m := range w.lab.Machines.Status() {
				running[m.Name]++
			}

			for name, count := range running {
				if count > 1 && !slices.Contains(twins, name) {
					twins = append(twins, name)
				}
			}

			time.Sleep(20 * time.Millisecond)
		}
	})

	return func() []string {
		cancel()
		watching.Wait()

		return twins
	}
}

// nodeUID returns the UID of a node.
func (k workload) nodeUID(name string) string {
	k.Helper()

	node, err := k.client.CoreV1().Nodes().Get(k.Context(), name, metav1.GetOptions{})
	require.NoError(k, err)

	return string(node.UID)
}

// requireLastWrite checks that the last of a client's writes is there, or one whose answer was lost.
func (k workload) requireLastWrite(writes int) {
	k.Helper()

	found, err := k.client.CoreV1().ConfigMaps("default").Get(k.Context(), probeName, metav1.GetOptions{})
	require.NoError(k, err)

	count, err := strconv.Atoi(found.Data["count"])
	require.NoError(k, err)
	assert.Contains(k, []int{writes, writes + 1}, count)
}
