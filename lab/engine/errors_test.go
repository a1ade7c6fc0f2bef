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
	row string
	// cause brings it about, in the data centre or in the stack file, and returns what takes it away again.
	cause func(w *world, s *stack, n spec.Node) (cure func())
	// asked is what the user wants of the stack; nil = one worker more.
	asked func(s *stack)
	// subject is who it fails for; nil = the newest worker.
	subject func(w *world, s stack) spec.Node
	// says is what Proxmox said, advice what to do, with {vmid}, {name}, {host} and {template} of the machine that was
	// asked for.
	says, advice string
	// refresh says that the next up needs to look at the world first.
	refresh bool
	// unhealed leaves the failed machine to the next row.
	unhealed bool
}

// errorsOf runs rows one after the other on one lab: an up fails, names the machine, what Proxmox said and what to do;
// the next one, with the cause gone, converges.
func errorsOf(t *testing.T, w *world, s *stack, rows []failure) {
	t.Helper()
	w.up(s.yaml(t))

	for _, row := range rows {
		next := *s
		next.Clusters = []cluster{s.Clusters[0]}

		if row.asked == nil {
			row.asked = oneWorkerMore
		}

		if row.subject == nil {
			row.subject = newestWorker
		}

		row.asked(&next)
		node := row.subject(w, next)
		cure := row.cause(w, &next, node)
		filled := strings.NewReplacer(
			"{vmid}", strconv.Itoa(node.VMID), "{name}", node.Name, "{host}", node.Host, "{template}",
			strconv.Itoa(node.Template.VMID),
		).Replace
		before := len(w.said())

		_, err := w.tryUp(t.Context(), next.yaml(t))
		require.Error(t, err, row.row)

		said := w.said()[before:]
		assert.Contains(t, said, filled(row.says), row.row)
		assert.Contains(t, said, filled(row.advice), row.row)
		assert.Contains(t, said, node.Name, row.row)

		for line := range strings.SplitSeq(said, "\n") {
			if strings.Contains(line, "Reason: ") || strings.Contains(line, "exit code: ") ||
				strings.Contains(line, "What to do: ") {
				t.Logf("%s: %s", row.row, strings.TrimSpace(line))
			}
		}

		if cure != nil {
			cure()
		}

		if *s = next; row.unhealed {
			continue
		}

		var options []optup.Option
		if row.refresh {
			options = append(options, optup.Refresh())
		}

		_, err = w.tryUp(t.Context(), s.yaml(t), options...)
		require.NoError(t, err, "%s: %s", row.row, w.said()[before:])
		w.requirePlanned(*s, row.row)
	}

	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
	w.destroy(s.yaml(t))
	w.requireEmpty()
}

func oneWorkerMore(s *stack) { s.Clusters[0].Workers++ }

func oneWorkerLess(s *stack) { s.Clusters[0].Workers-- }

func (w *world) plan(s stack) *spec.Plan {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	target, err := engine.NewTarget(w.options.Stack, []byte(s.yaml(w.t)), w.network, connection)
	require.NoError(w.t, err)
	require.NotEmpty(w.t, target.Plan.Clusters, "a stack file that cannot be planned")

	return target.Plan
}

func newestWorker(w *world, s stack) spec.Node {
	nodes := w.plan(s).Clusters[0].Nodes()

	return nodes[len(nodes)-1]
}

// firstWorker is for what concerns all machines: the engine starts no further step after a failure, so that only one
// machine is asked to change.
func firstWorker(w *world, s stack) spec.Node { return w.plan(s).Clusters[0].Workers[0] }

// pinned gives single workers what they have for themselves.
func pinned(nodes string) func(*stack) { return func(s *stack) { s.Clusters[0].Pins = nodes } }

// leaving is the worker that goes where there is to be one less.
func leaving(w *world, s stack) spec.Node {
	s.Clusters = []cluster{s.Clusters[0]}
	oneWorkerMore(&s)

	return newestWorker(w, s)
}

// requirePlanned finds the planned machines and no others, all of them running.
func (w *world) requirePlanned(s stack, row string) {
	w.t.Helper()

	planned := map[string]int{}
	for _, n := range w.plan(s).Clusters[0].Nodes() {
		planned[n.Name] = n.VMID
	}

	require.Equal(w.t, planned, w.machines(), row)
	w.requireRunning(len(planned))
}

// do waits for a task that must end well.
func (w *world) do(upid string, err error) {
	w.t.Helper()
	require.NoError(w.t, err)

	task, err := w.lab.Data.WaitTask(w.t.Context(), upid)
	require.NoError(w.t, err)
	require.Equal(w.t, "OK", task.ExitStatus)
}

// fault is a cause that `lab fault add` brings about; its VMID and host are the machine's where the given function sets
// them.
func fault(make func(n spec.Node) datacentre.Fault) func(*world, *stack, spec.Node) func() {
	return func(w *world, _ *stack, n spec.Node) func() {
		_, err := w.lab.Data.AddFault(make(n))
		require.NoError(w.t, err)

		return func() { require.NoError(w.t, w.lab.Data.ClearFaults()) }
	}
}

func always(f datacentre.Fault) func(spec.Node) datacentre.Fault {
	return func(spec.Node) datacentre.Fault { return f }
}

// foreign is a machine of someone else at the VMID.
func foreign(w *world, _ *stack, n spec.Node) func() {
	w.do(w.lab.Data.CreateVM(labRoot, "pve1", n.VMID, datacentre.Config{"name": "foreign"}))

	return func() { w.remove("pve1", n.VMID) }
}

func (w *world) remove(host string, vmid int) {
	w.do(w.lab.Data.Stop(labRoot, host, vmid))
	w.do(w.lab.Data.DestroyVM(labRoot, host, vmid, nil))
}

// datastore states another datastore for the workers; the next row or the cure takes it back.
func datastore(name string) func(*world, *stack, spec.Node) func() {
	return func(_ *world, s *stack, _ spec.Node) func() {
		s.Clusters[0].Pins = "datastore: " + name

		return func() { s.Clusters[0].Pins = "" }
	}
}

// oddStorages are one that is disabled, and one that pve2 alone has.
func oddStorages(host string) []datacentre.StorageOptions {
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

// storageRows are the refusals of datastores, by the stack file's own fault; each finds the machine of the row before
// still unmade.
func storageRows() []failure {
	none := func(*stack) {}
	on := func(name string) func(*world, *stack, spec.Node) func() {
		return func(w *world, s *stack, n spec.Node) func() {
			cure := datastore(name+"\n          "+onlyPve1)(w, s, n)

			return func() { cure(); s.Clusters[0].Pins = onlyPve1 }
		}
	}

	return []failure{
		{
			row: "an unknown storage", cause: on("nowhere"), unhealed: true, // the provider keeps Proxmox' words to itself
			says:   "the requested resource does not exist",
			advice: "its datastore nowhere (`pvesm status` lists those that there are; bring it back, or choose another",
		},
		{
			row:      "a disabled storage",
			cause:    on("retired"),
			asked:    none,
			says:     "storage 'retired' is disabled",
			advice:   storageAdvice,
			unhealed: true,
		},
		{
			row:      "another host's storage",
			cause:    on("fast"),
			asked:    none,
			says:     "storage 'fast' is not available on node 'pve1'",
			advice:   storageAdvice,
			unhealed: true,
		},
		{
			row:    "a storage for files",
			cause:  on("local"),
			asked:  none,
			says:   "storage 'local' does not support vm images",
			advice: storageAdvice,
		},
	}
}
