package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/operations"
	"talos-proxmox/lab/datacentre"
)

// journal is a file in which the commands of a maintenance write a line.
type journal struct {
	t    *testing.T
	path string
}

func newJournal(t *testing.T) journal {
	t.Helper()

	return journal{t, filepath.Join(t.TempDir(), "journal")}
}

// keys are those of a cluster whose commands write to the journal.
func (j journal) keys() string {
	return fmt.Sprintf(`maintenance:
        before: 'echo "before $TALOS_PROXMOX_OPERATION of $TALOS_PROXMOX_NODES in $TALOS_PROXMOX_STACK $TALOS_PROXMOX_CLUSTER" >> %[1]s'
        after: 'echo "after: $TALOS_PROXMOX_OUTCOME" >> %[1]s'`, j.path)
}

// isBegun reports whether a run has begun its maintenance.
func (j journal) isBegun() bool {
	content, _ := os.ReadFile(j.path)

	return strings.Contains(string(content), "before ")
}

// require requires that one run interrupted machines, and forgets the lines.
func (j journal) require(operation, nodes, outcome string) {
	j.t.Helper()

	lines := j.take()
	require.Len(j.t, lines, 2)
	assert.Regexp(j.t, "^before "+operation+" of "+nodes+" in organization/talos-proxmox/lab one$", lines[0])
	assert.Equal(j.t, "after: "+outcome, lines[1])
}

// take returns the lines, and forgets them.
func (j journal) take() []string {
	j.t.Helper()

	content, err := os.ReadFile(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	require.NoError(j.t, err)
	require.NoError(j.t, os.Remove(j.path))

	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

const eitherWorker = "one-general-[12]" // of a pool, the order is the engine's

// TestCommandsOfAMaintenance: they run once each around whatever a run interrupts, however it ends, and only then.
func TestCommandsOfAMaintenance(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	defer w.newLanguageHost().use()()

	j := newJournal(t)
	s := w.stack(1, 2)
	s.Clusters[0].YAML = j.keys()

	w.up(s.yaml(t))
	w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, j.take(), "nothing is interrupted")

	s.Clusters[0].WorkerMemory = 5120
	output := w.outputOf(func() { w.up(s.yaml(t)) })

	j.require("restart", eitherWorker, "succeeded")

	begun := strings.Index(output, "one: maintenance: maintenance.before has run")
	ended := strings.Index(output, "one: maintenance: maintenance.after has run (succeeded)")

	for _, name := range []string{"one-general-1", "one-general-2"} {
		changed, back := strings.Index(output, name+": change: is changed"), strings.LastIndex(output, name+": change: is back")
		assert.True(t, 0 < begun && begun < changed && changed < back && back < ended, "%s: %s", name, output)
	}

	w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, j.take())

	// A command that fails stops the run before anything is changed.
	booted := w.bootTimes()
	failing := s
	failing.Clusters = []cluster{s.Clusters[0]}
	failing.Clusters[0].WorkerMemory = 6144
	failing.Clusters[0].YAML = strings.Replace(j.keys(), "before: '", "before: 'echo no route to Alertmanager; exit 7; ", 1)
	output = w.failedUp(failing.yaml(t))
	assert.Regexp(t, "error: .*"+eitherWorker+" is not changed, because that restarts it: maintenance.before of cluster one fails: exit "+
		"status 7: no route to Alertmanager. Repair what it says, or change the command in the stack file", output)
	assert.Equal(t, booted, w.bootTimes())
	assert.Empty(t, j.take(), "there is nothing to end")

	failing.Clusters[0].YAML = strings.Replace(j.keys(), "after: '", "after: 'no-such-program; ", 1)
	assert.Contains(t, w.previewOutput(failing.yaml(t)), "begins with no-such-program, which is not on PATH of this computer")
	assert.Contains(t, w.failedUp(failing.yaml(t)), "clusters[0].maintenance.after: ")
	assert.Empty(t, j.take())

	// So does one whose machine cannot be changed.
	unlock := w.addFault(datacentre.Fault{Lock: "backup", VMID: 3000})
	s.Clusters[0].WorkerMemory = 6144
	w.failedUp(s.yaml(t))
	j.require("restart", eitherWorker, "failed")
	unlock()

	// Everything of a run is killed; the next one ends its maintenance, and begins its own.
	w.killedUp(s.yaml(t), func(w *world) bool {
		begun := j.isBegun()
		if begun {
			w.killProcesses(w.processes("talosops"))
		}

		return begun
	}, true, optup.Refresh())
	assert.Len(t, j.take(), 1)
	w.recover()
	output = w.outputOf(func() { w.up(s.yaml(t), optup.Refresh()) })

	assert.Equal(t, "after: interrupted", j.take()[0])
	assert.Contains(t, output, "one: maintenance: was not ended by ")
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())
	assert.Empty(t, j.take())

	s.Clusters[0].Workers = 1
	w.up(s.yaml(t))
	j.require("remove", "one-general-2", "succeeded")
	w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Empty(t, j.take())
}

// TestAKilledProgramEndsItsMaintenance: what holds the cluster for the run outlives the program.
func TestAKilledProgramEndsItsMaintenance(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	host := w.newLanguageHost()

	defer host.use()()

	j := newJournal(t)
	s := w.stack(1, 2)
	s.Clusters[0].YAML = j.keys()
	w.up(s.yaml(t))

	s.Clusters[0].WorkerMemory = 5120

	w.when(t.Context(), func(*world) bool { return j.isBegun() }, func() { assert.True(t, host.kill()) })

	w.failedUp(s.yaml(t))
	require.Eventually(t, func() bool {
		content, _ := os.ReadFile(j.path)

		return strings.Contains(string(content), "after: ")
	}, within, 100*time.Millisecond)
	j.require("restart", eitherWorker, "interrupted")
}

// receiver is a webhook, with a token in its URL.
type receiver struct {
	*httptest.Server

	mu        sync.Mutex
	documents []notified
	bodies    []string
}

// notified is the document that a webhook gets.
type notified struct {
	Version                              int
	Text, Stack, Operation, Outcome, See string
	Started, Ended                       string
	Planned, Error                       []string
	Machines                             []struct {
		Name, Change string
		Failed       bool
	}
	Repairs []operations.Repair
}

const webhookToken = "/services/T0/hunter2-token"

func newReceiver(t *testing.T) *receiver {
	t.Helper()

	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		assert.NoError(t, err)

		if in.URL.Path != webhookToken {
			out.WriteHeader(http.StatusNotFound)

			return
		}

		var d notified

		assert.NoError(t, json.Unmarshal(body, &d))

		r.mu.Lock()
		defer r.mu.Unlock()

		r.documents, r.bodies = append(r.documents, d), append(r.bodies, string(body))
	}))
	t.Cleanup(r.Close)

	return r
}

// take returns the only document since the last time.
func (r *receiver) take(t *testing.T) notified {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()

	require.Len(t, r.documents, 1)
	d := r.documents[0]
	t.Log(r.bodies[0])

	assert.NotContains(t, r.bodies[0], "hunter2")
	assert.Equal(t, "lab", d.Stack)
	assert.Equal(t, 1, d.Version)
	assert.NotEmpty(t, d.See)
	assert.LessOrEqual(t, d.Started, d.Ended)

	r.documents, r.bodies = nil, nil

	return d
}

// TestNotifications: a webhook gets what deploy, replace and repair did, or failed at.
func TestNotifications(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	hook := newReceiver(t)
	j := newJournal(t)
	s := w.stack(1, 2)
	s.Clusters[0].YAML, s.Clusters[0].WorkerYAML = j.keys(), "repair: {after: 1m}"

	run := func(url string, arguments ...string) (string, error) {
		t.Helper()

		cmd := w.engineCommand(s.yaml(t), append([]string{arguments[0], w.options.Stack}, arguments[1:]...)...)
		if strings.HasPrefix(url, "config ") {
			_, err := w.pulumi("config", "set", "--secret", "--path", "talos-proxmox:notifications.webhook",
				strings.TrimPrefix(url, "config "), "--stack", w.options.Stack)
			require.NoError(t, err)
		} else {
			cmd.Env = append(cmd.Env, "TALOS_PROXMOX_WEBHOOK="+url)
		}

		out, err := cmd.CombinedOutput()
		_, _ = w.Write(out)
		assert.NotContains(t, string(out), "hunter2")

		return string(out), err
	}

	out, err := run("http://hooks.example.org"+webhookToken, "deploy", "--yes")
	require.Error(t, err)
	assert.Contains(t, out, "the variable TALOS_PROXMOX_WEBHOOK is not encrypted, and the URL has a token; use https://")

	out, err = run(hook.URL+webhookToken, "deploy", "--yes")
	require.NoError(t, err, out)

	d := hook.take(t)
	assert.Equal(t, "deploy succeeded", d.Operation+" "+d.Outcome)
	require.Len(t, d.Machines, 3)
	assert.Equal(t, "one-cp-1 created", d.Machines[0].Name+" "+d.Machines[0].Change)
	assert.Regexp(t, `^talos-proxmox deploy lab succeeded after \d+.*s: one-cp-1 created, one-general-1 created, one-general-2 created \(`, d.Text)
	assert.Empty(t, d.Error)
	assert.Empty(t, j.take())

	// A run that fails; the URL comes from the stack file.
	s.Clusters[0].WorkerMemory = 5120
	unlock := w.addFault(datacentre.Fault{Lock: "backup", VMID: 3000})
	out, err = run("config "+hook.URL+webhookToken, "deploy", "--yes")
	require.Error(t, err, out)

	d = hook.take(t)
	assert.Equal(t, "deploy failed", d.Operation+" "+d.Outcome)
	assert.Contains(t, strings.Join(d.Planned, "\n"), "one-general-1, one-general-2 restart: memory 4096 → 5120 MiB")
	require.NotEmpty(t, d.Machines)
	assert.Equal(t, "one-general-1 restarted", d.Machines[0].Name+" "+d.Machines[0].Change)
	assert.True(t, d.Machines[0].Failed)
	assert.Equal(t, "one-general-1-vm: error updating VM: received an HTTP 500 response - Reason: VM is locked (backup)",
		strings.ReplaceAll(d.Error[0], "one-general-2", "one-general-1"))
	j.require("restart", eitherWorker, "failed")
	unlock()

	// A receiver that takes nothing is a warning.
	out, err = run(hook.URL+"/elsewhere/hunter2", "deploy", "--yes")
	require.NoError(t, err, out)
	assert.Contains(t, out, "warning: the webhook is not told everything: the receiver answers 404 Not Found")
	j.require("restart", eitherWorker, "succeeded")

	out, err = run(hook.URL+webhookToken, "replace", "one-general-2", "--yes")
	require.NoError(t, err, out)

	d = hook.take(t)
	assert.Equal(t, "replace succeeded", d.Operation+" "+d.Outcome)
	require.Len(t, d.Machines, 1)
	assert.Equal(t, "one-general-2 replaced", d.Machines[0].Name+" "+d.Machines[0].Change)
	j.require("remove", "one-general-2", "succeeded")

	// A repair that has nothing to do tells nobody, and one that waits does not either.
	out, err = run(hook.URL+webhookToken, "repair")
	require.NoError(t, err, out)
	assert.Empty(t, hook.documents)

	w.stopVM(w.vm("one-general-2").ID)

	require.Eventually(t, func() bool {
		out, err = run(hook.URL+webhookToken, "repair")

		if strings.Contains(out, tooEarly) {
			assert.Empty(t, hook.documents)
			assert.Empty(t, j.take())
		}

		return err != nil || len(hook.documents) > 0
	}, within, time.Second, "%s", w.output())
	require.NoError(t, err, out)

	d = hook.take(t)
	assert.Equal(t, "repair succeeded", d.Operation+" "+d.Outcome)
	require.Len(t, d.Repairs, 1)
	assert.Equal(t, operations.RepairReplaced, d.Repairs[0].Action)
	require.Len(t, d.Machines, 1)
	assert.Equal(t, "one-general-2 replaced", d.Machines[0].Name+" "+d.Machines[0].Change)
	j.require("remove", "one-general-2", "succeeded")
}
