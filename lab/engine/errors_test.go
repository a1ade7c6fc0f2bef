package engine_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/engine"
)

const labRoot = "root@pam"

// failure is a row of the table of Proxmox' errors as the program meets it.
type failure struct {
	name string
	// cause provokes it, in the data centre or in the stack file, and returns a function that removes the cause.
	cause func(w *world, s *stack, n spec.Node) (cure func())
	// change is what the user changes in the stack; nil = one worker more.
	change func(s *stack)
	// subject is the machine that fails; nil = the newest worker.
	subject func(w *world, s stack) spec.Node
	// message is Proxmox' error and advice what to do, with {vmid}, {name}, {host} and {template} of the subject.
	message, advice string
	// refresh is set if the next up has to refresh first.
	refresh bool
	// leaveFailed leaves the failed machine to the next row.
	leaveFailed bool
}

// runFailures runs rows one after the other on one lab: an up fails, and names the machine, Proxmox' error and what to
// do; the next one, without the cause, converges.
func runFailures(t *testing.T, w *world, s *stack, rows []failure) {
	t.Helper()
	w.up(s.yaml(t))

	for _, row := range rows {
		next := *s
		next.Clusters = []cluster{s.Clusters[0]}

		if row.change == nil {
			row.change = addWorker
		}

		if row.subject == nil {
			row.subject = lastWorker
		}

		row.change(&next)
		node := row.subject(w, next)
		cure := row.cause(w, &next, node)
		filled := strings.NewReplacer(
			"{vmid}", strconv.Itoa(node.VMID), "{name}", node.Name, "{host}", node.Host, "{template}",
			strconv.Itoa(node.Template.VMID),
		).Replace
		before := len(w.output())

		_, err := w.tryUp(t.Context(), next.yaml(t))
		require.Error(t, err, row.name)

		output := w.output()[before:]
		assert.Contains(t, output, filled(row.message), row.name)
		assert.Contains(t, output, filled(row.advice), row.name)
		assert.Contains(t, output, node.Name, row.name)

		for line := range strings.SplitSeq(output, "\n") {
			if strings.Contains(line, "Reason: ") || strings.Contains(line, "exit code: ") ||
				strings.Contains(line, "What to do: ") {
				t.Logf("%s: %s", row.name, strings.TrimSpace(line))
			}
		}

		if cure != nil {
			cure()
		}

		if *s = next; row.leaveFailed {
			continue
		}

		var options []optup.Option
		if row.refresh {
			options = append(options, optup.Refresh())
		}

		_, err = w.tryUp(t.Context(), s.yaml(t), options...)
		require.NoError(t, err, "%s: %s", row.name, w.output()[before:])
		w.requirePlanned(*s, row.name)
	}

	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
	w.destroy(s.yaml(t))
	w.requireEmpty()
}

func addWorker(s *stack) { s.Clusters[0].Workers++ }

func removeWorker(s *stack) { s.Clusters[0].Workers-- }

func (w *world) plan(s stack) *spec.Plan {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	target, err := engine.NewTarget(w.options.Stack, []byte(s.yaml(w.t)), w.network, connection)
	require.NoError(w.t, err)
	require.NotEmpty(w.t, target.Plan.Clusters, "a stack file that cannot be planned")

	return target.Plan
}

func lastWorker(w *world, s stack) spec.Node {
	nodes := w.plan(s).Clusters[0].Nodes()

	return nodes[len(nodes)-1]
}

// firstWorker is the subject of changes to all machines: the engine starts no step after a failure, so that only one
// machine may change.
func firstWorker(w *world, s stack) spec.Node { return w.plan(s).Clusters[0].Workers[0] }

// setWorkerYAML sets YAML of the worker pool.
func setWorkerYAML(nodes string) func(*stack) {
	return func(s *stack) { s.Clusters[0].WorkerYAML = nodes }
}

// removedWorker is the worker that is removed from a stack with one worker less.
func removedWorker(w *world, s stack) spec.Node {
	s.Clusters = []cluster{s.Clusters[0]}
	addWorker(&s)

	return lastWorker(w, s)
}

// requirePlanned checks that the planned machines run, and no others.
func (w *world) requirePlanned(s stack, row string) {
	w.t.Helper()

	planned := map[string]int{}
	for _, n := range w.plan(s).Clusters[0].Nodes() {
		planned[n.Name] = n.VMID
	}

	require.Equal(w.t, planned, w.machines(), row)
	w.requireRunning(len(planned))
}

// faultCause is a cause that adds a fault, about the VMID and host that the given function sets.
func faultCause(make func(n spec.Node) datacentre.Fault) func(*world, *stack, spec.Node) func() {
	return func(w *world, _ *stack, n spec.Node) func() {
		return w.addFault(make(n))
	}
}

func forAnyNode(f datacentre.Fault) func(spec.Node) datacentre.Fault {
	return func(spec.Node) datacentre.Fault { return f }
}

// foreignVM creates someone else's machine with the VMID.
func foreignVM(w *world, _ *stack, n spec.Node) func() {
	w.requireTask(w.lab.Data.CreateVM(labRoot, "pve1", n.VMID, datacentre.Config{"name": "foreign"}))

	return func() { w.removeVM(n.VMID) }
}

// workerDatastore sets another datastore for the workers; the next row or the cure resets it.
func workerDatastore(name string) func(*world, *stack, spec.Node) func() {
	return func(_ *world, s *stack, _ spec.Node) func() {
		s.Clusters[0].WorkerYAML = "datastore: " + name

		return func() { s.Clusters[0].WorkerYAML = "" }
	}
}

// specialStorages are a disabled one, and one that only pve2 has.
func specialStorages(host string) []datacentre.StorageOptions {
	list := []datacentre.StorageOptions{
		{Name: "retired", Type: "lvmthin", Content: []string{"images"}, SizeBytes: datacentre.GiB, Disabled: true},
	}
	if host == "pve2" {
		list = append(
			list,
			datacentre.StorageOptions{Name: "fast", Type: "lvmthin", Content: []string{"images"}, SizeBytes: datacentre.GiB},
		)
	}

	return list
}

// onlyPve1 keeps all workers on the first host.
const onlyPve1 = "hosts: [pve1]"

const storageAdvice = "on {host} for disk images (`pvesm status --content images` lists those that are)"

// storageRows are refusals of datastores that the stack file names, the first one's with this message and advice; each
// finds the machine of the previous row still missing.
func storageRows(message, advice string) []failure {
	none := func(*stack) {}
	on := func(name string) func(*world, *stack, spec.Node) func() {
		return func(w *world, s *stack, n spec.Node) func() {
			cure := workerDatastore(name+"\n          "+onlyPve1)(w, s, n)

			return func() { cure(); s.Clusters[0].WorkerYAML = onlyPve1 }
		}
	}

	return []failure{
		{
			name: "an unknown storage", cause: on("nowhere"), leaveFailed: true, message: message, advice: advice,
		},
		{
			name:        "a disabled storage",
			cause:       on("retired"),
			change:      none,
			message:     "storage 'retired' is disabled",
			advice:      storageAdvice,
			leaveFailed: true,
		},
		{
			name:        "another host's storage",
			cause:       on("fast"),
			change:      none,
			message:     "storage 'fast' is not available on node 'pve1'",
			advice:      storageAdvice,
			leaveFailed: true,
		},
		{
			name:    "a storage for files",
			cause:   on("local"),
			change:  none,
			message: "storage 'local' does not support vm images",
			advice:  storageAdvice,
		},
	}
}
