package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/operations"
)

// repaired is what `talos-proxmox repair` prints.
type repaired struct {
	Stack   string
	Repairs []operations.Repair
	Error   string

	status int
	output string // of the engine and its like
}

// of returns what was done about a node.
func (r repaired) of(node string) operations.Repair {
	for _, repair := range r.Repairs {
		if repair.Node == node {
			return repair
		}
	}

	return operations.Repair{}
}

// repair runs `talos-proxmox repair` as a timer does.
func (w *world) repair(file string, arguments ...string) repaired {
	w.t.Helper()

	return w.runRepair(w.repairCommand(file, arguments...))
}

func (w *world) repairCommand(file string, arguments ...string) *exec.Cmd {
	w.t.Helper()

	return w.engineCommand(file, append([]string{"repair", w.options.Stack, "--output", "json"}, arguments...)...)
}

func (w *world) runRepair(cmd *exec.Cmd) (r repaired) {
	w.t.Helper()

	var stdout, stderr bytes.Buffer

	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	_, _ = w.Write(append(stderr.Bytes(), stdout.Bytes()...))

	var ended *exec.ExitError
	if errors.As(err, &ended) {
		r.status = ended.ExitCode()
	} else {
		require.NoError(w.t, err)
	}

	require.NoError(w.t, json.Unmarshal(stdout.Bytes(), &r), stderr.String())
	r.output = stderr.String()

	return r
}

// tooEarly is what is said of a worker that is dead for less than the shortest time, which these tests set.
const tooEarly = "and may be replaced after 1m0s"

// repairStack returns a stack file with a pool of workers to repair, and a pool of one worker with volumes: a directory
// volume and a PersistentVolume on its system disk.
func (w *world) repairStack(t testing.TB, controlPlanes, workers int, keys string) string {
	t.Helper()

	s := w.stack(controlPlanes, workers)
	s.Clusters[0].YAML = `patches: ["{cluster: {inlineManifests: [{name: volume, contents: '{apiVersion: v1, kind: PersistentVolume, ` +
		`metadata: {name: pvc-1}, spec: {local: {path: /var/mnt/local/pvc-1}, claimRef: {namespace: default, name: db}, nodeAffinity: ` +
		`{required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [one-db-1]}]}]}}}}'}]}}"]`
	s.Clusters[0].WorkerYAML = keys + `
          repair: {after: 1m}
        - name: db
          cores: 2
          memoryMiB: 4096
          diskGiB: 20
          firstVmid: 3100
          firstAddress: ` + w.network + `.1.40
          patches: ["{apiVersion: v1alpha1, kind: UserVolumeConfig, name: local, volumeType: directory}"]
          repair: {after: 1m}`

	return s.yaml(t)
}

// TestRepair: a timer replaces dead workers, and nothing else.
func TestRepair(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	file := w.repairStack(t, 3, 2, "")
	w.up(file)

	boots := w.bootTimes()

	r := w.repair(file)
	assert.Zero(t, r.status, r.output)
	assert.Empty(t, r.Repairs)

	for _, name := range []string{"one-general-1", "one-general-2", "one-db-1"} {
		w.stopVM(w.vm(name).ID)
	}

	require.Eventually(t, func() bool {
		r = w.repair(strings.ReplaceAll(file, "repair: {after: 1m}", "repair: {after: 1h}"))

		return len(r.Repairs) == 3
	}, within, time.Second, "%s", w.output())
	assert.Zero(t, r.status, r.output)

	for _, repair := range r.Repairs {
		assert.Equal(t, operations.RepairWait, repair.Action)
		assert.Contains(t, repair.Why, "and may be replaced after 1h0m0s")
	}

	// One of a pool, and none with volumes. Each machine has a time of its own, from when the cluster found it silent.
	require.Eventually(t, func() bool {
		r = w.repair(file, "--dry-run")

		return !slices.ContainsFunc(r.Repairs, func(r operations.Repair) bool { return strings.Contains(r.Why, tooEarly) })
	}, within, time.Second, "%s", w.output())
	assert.Equal(t, 1, r.status, r.output)
	require.Len(t, r.Repairs, 3)
	assert.Equal(t, operations.RepairReplace, r.of("one-general-1").Action)
	assert.Equal(t, operations.RepairWait, r.of("one-general-2").Action)
	assert.Contains(t, r.of("one-general-2").Why, "; but a run replaces at most 1 of pool general (repair.max), and the next run goes on")
	assert.Equal(t, operations.RepairRefuse, r.of("one-db-1").Action)
	assert.Equal(t, "talos-proxmox replace lab one-db-1 --lose-volumes one-db-1/pvc-1,one-db-1/local", r.of("one-db-1").Command)

	// A stack file that somebody has changed is not deployed.
	r = w.repair(w.repairStack(t, 3, 2, "tags: [new]"))
	assert.Equal(t, 1, r.status, r.output)
	assert.Equal(t, operations.RepairRefuse, r.of("one-general-1").Action)
	assert.Contains(t, r.of("one-general-1").Why, "the run would do more than replace one-general-1")
	assert.Equal(t, "talos-proxmox preview lab", r.of("one-general-1").Command)
	assert.NotContains(t, w.tasksOf(3000), "qmdestroy")

	// A person is told of all that is lost.
	out, err := w.tryReplace(file, "one-db-1")
	require.Error(t, err)
	assert.Contains(t, out, "  the volume pvc-1 of claim default/db is deleted with it: /var/mnt/local/pvc-1\n")
	assert.Contains(t, out, "repeat with --lose-volumes one-db-1/pvc-1,one-db-1/local\n")

	// The run is killed once the old machine is deleted, and once the new one exists: the next one goes on. A kill can
	// leave half a state, which these commands recover, and which the test could not read to make another one.
	first, second, last := w.repairCommand(file), w.repairCommand(file), w.repairCommand(file)
	attributes := filepath.Join(w.dir, "state", ".pulumi", "stacks", "talos-proxmox", "lab.json.attrs")
	require.NoError(t, os.WriteFile(attributes, nil, 0o600))

	for _, killed := range []struct {
		cmd *exec.Cmd
		at  func(*world) bool
	}{
		{first, func(w *world) bool { return w.machines()["one-general-1"] == 0 }},
		{second, func(w *world) bool { return w.machines()["one-general-1"] != 0 && w.vm("one-general-1").Running }},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		w.when(ctx, killed.at, func() { w.killEngine(true) })

		r = w.runRepair(killed.cmd)

		cancel()
		assert.Equal(t, 2, r.status, r.output)
		assert.Equal(t, operations.RepairFailed, r.of("one-general-1").Action)
		assert.Contains(t, r.Error, "unable to replace the machine of one-general-1: ")
	}

	r = w.runRepair(last)
	assert.Zero(t, r.status, r.output) // what was only off was started by the run
	assert.Equal(t, operations.RepairReplaced, r.of("one-general-1").Action, r.output)
	assert.Contains(t, r.output, "its replacement was interrupted, and is finished")
	w.requireRunning(6)

	r = w.repair(file)
	assert.Zero(t, r.status, r.output)
	assert.Empty(t, r.Repairs)

	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
	w.requireMembers(3)

	now := w.bootTimes()
	for _, name := range []string{"one-cp-1", "one-cp-2", "one-cp-3"} {
		assert.Equal(t, boots[name], now[name], name)
	}

	// A worker with volumes is replaced if its pool says that they may be lost.
	w.stopVM(w.vm("one-db-1").ID)
	assert.NotContains(t, w.tasksOf(3100), "qmdestroy")

	at := strings.LastIndex(file, "repair: {after: 1m}")
	lossy := file[:at] + strings.Replace(file[at:], "after: 1m", "after: 1m, loseVolumes: true", 1)

	require.Eventually(t, func() bool {
		r = w.repair(lossy)

		return r.of("one-db-1").Action != "" && r.of("one-db-1").Action != operations.RepairWait
	}, within, time.Second, "%s", w.output())
	assert.Zero(t, r.status, r.output)
	assert.Equal(t, operations.RepairReplaced, r.of("one-db-1").Action, r.output)
	assert.Contains(t, w.tasksOf(3100), "qmdestroy")
	w.requireRunning(6)

	// Without etcd's majority nothing is repaired.
	for _, name := range []string{"one-cp-2", "one-cp-3", "one-general-1"} {
		w.stopVM(w.vm(name).ID)
	}

	require.Eventually(t, func() bool {
		r = w.repair(file)

		return r.status == 1 && len(r.Repairs) == 1
	}, within, time.Second, "%s", w.output())
	assert.Equal(t, operations.Repair{
		Cluster: "one", Action: operations.RepairRefuse, Command: "talos-proxmox status lab one",
		Why: "etcd has no majority, or does not answer, so that nothing is replaced",
	}, r.Repairs[0])

	r = w.repair(strings.ReplaceAll(file, "repair: {after: 1m}", "tags: []"))
	assert.Equal(t, 2, r.status)
	assert.Contains(t, r.Error, "no pool of workers of stack lab has repair")
}
