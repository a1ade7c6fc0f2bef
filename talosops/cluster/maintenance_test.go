package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
)

// maintained is a cluster whose commands write to a file what happens.
type maintained struct {
	*cluster.Cluster

	leases   *clustertest.Leases
	progress *bytes.Buffer
	journal  string
}

func newMaintained(t *testing.T) maintained {
	t.Helper()

	c, leases, progress := clustertest.NewLeased(t, nil)
	m := maintained{c, leases, progress, filepath.Join(t.TempDir(), "journal")}
	c.Kubeconfig = "of the cluster"
	c.Maintenance = &request.Maintenance{
		Maintenance: spec.Maintenance{
			Before: m.note(`before $TALOS_PROXMOX_OPERATION of $TALOS_PROXMOX_NODES in $TALOS_PROXMOX_CLUSTER`),
			After:  m.note(`after: $TALOS_PROXMOX_OUTCOME`),
		},
		Stack: "acme/talos-proxmox/prod", Cluster: "one",
	}

	return m
}

// note returns a command that writes a line.
func (m maintained) note(line string) string { return `echo "` + line + `" >> ` + m.journal }

// happened returns the lines, and forgets them.
func (m maintained) happened(t *testing.T) []string {
	t.Helper()

	content, err := os.ReadFile(m.journal)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	require.NoError(t, err)
	require.NoError(t, os.Remove(m.journal))

	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// step restarts a node, in a process of its own.
func (m maintained) step(t *testing.T, node string, failure error) error {
	t.Helper()

	own := *m.Cluster

	return own.WithLease(t.Context(), "changes "+node, func(ctx context.Context) error {
		if err := own.BeginMaintenance(ctx, node+" is not changed", cluster.Interruption{
			Operation: request.Restart, Nodes: []string{node},
		}); err != nil {
			return err
		}

		file, err := os.OpenFile(m.journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)

		_, err = file.WriteString(node + "\n")
		require.NoError(t, errors.Join(err, file.Close()))

		return failure
	})
}

func (m maintained) run(t *testing.T, outcome request.RunOutcome, steps func()) error {
	t.Helper()

	return m.HoldRun(t.Context(), func(context.Context) (request.RunOutcome, error) {
		steps()

		return outcome, nil
	})
}

// TestMaintenanceOfARun: its commands run once each around all steps, and not at all without a step.
func TestMaintenanceOfARun(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		outcome request.RunOutcome
		fails   error
		after   string
	}{
		"which succeeds":              {request.Succeeded, nil, "succeeded"},
		"which fails":                 {request.Failed, nil, "failed"},
		"which is killed":             {request.Interrupted, nil, "interrupted"},
		"whose last step has failed":  {request.Succeeded, errors.New("w-2 is not back"), "failed"},
		"killed after a failed step ": {request.Interrupted, errors.New("w-2 is not back"), "interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			m := newMaintained(t)

			require.NoError(t, m.run(t, test.outcome, func() {
				require.NoError(t, m.step(t, "w-1", nil))
				assert.Contains(t, m.leases.Maintenance.HolderIdentity, " brings stack acme/talos-proxmox/prod up: maintenance")
				require.ErrorIs(t, m.step(t, "w-2", test.fails), test.fails)
			}))
			assert.Equal(t, []string{"before restart of w-1 in one", "w-1", "w-2", "after: " + test.after}, m.happened(t))
			assert.Empty(t, m.leases.Maintenance.HolderIdentity)
			assert.Contains(t, m.progress.String(), "one: maintenance: maintenance.after has run ("+test.after+")\n")

			require.NoError(t, m.run(t, request.Succeeded, func() {}))
			assert.Empty(t, m.happened(t), "nothing is interrupted")
		})
	}
}

// TestMaintenanceThatCannotBegin: no machine is interrupted but dead ones, and there is nothing to end.
func TestMaintenanceThatCannotBegin(t *testing.T) {
	t.Parallel()

	m := newMaintained(t)
	works := m.Maintenance.Before
	m.Maintenance.Before = "echo no route to Alertmanager; exit 7"

	require.NoError(t, m.run(t, request.Failed, func() {
		require.EqualError(t, m.step(t, "w-1", nil), "w-1 is not changed: maintenance.before of cluster one fails: exit status 7: "+
			"no route to Alertmanager. Repair what it says, or change the command in the stack file")

		m.Maintenance.Before = works
		require.EqualError(t, m.step(t, "w-2", nil),
			"w-2 is not changed: maintenance.before of cluster one has failed in this run")

		require.NoError(t, m.WithLease(t.Context(), "takes w-3 out", func(ctx context.Context) error {
			return m.BeginMaintenance(ctx, "w-3 stays", cluster.Interruption{Operation: request.Remove, Dead: true})
		}))
	}))
	assert.Empty(t, m.happened(t))
	assert.Empty(t, m.leases.Maintenance.HolderIdentity)

	require.NoError(t, m.run(t, request.Succeeded, func() { require.NoError(t, m.step(t, "w-1", nil)) }))
	assert.Equal(t, []string{"before restart of w-1 in one", "w-1", "after: succeeded"}, m.happened(t))

	m.Maintenance.Before = "exit 7"

	require.NoError(t, m.run(t, request.Succeeded, func() {
		require.NoError(t, m.WithLease(t.Context(), "takes w-3 out", func(ctx context.Context) error {
			return m.BeginMaintenance(ctx, "w-3 stays", cluster.Interruption{Operation: request.Remove, Dead: true})
		}))
	}))
	assert.Contains(t, m.progress.String(), "fails: exit status 7; that does not hold up the repair of a dead machine")
	assert.Empty(t, m.happened(t))
}

// TestMaintenanceOfAKilledRun is ended by the next run, and by a step that belongs to none.
func TestMaintenanceOfAKilledRun(t *testing.T) {
	t.Parallel()

	m := newMaintained(t)

	const killed = "ann@desk (process 7 of 5b2c81d09e41) brings stack acme/talos-proxmox/prod up"

	m.leases.LeaveMaintenance(killed)
	require.NoError(t, m.run(t, request.Succeeded, func() {}))
	assert.Equal(t, []string{"after: interrupted"}, m.happened(t))
	assert.Contains(t, m.progress.String(), "one: maintenance: was not ended by "+killed+"\n")
	assert.Empty(t, m.leases.Maintenance.HolderIdentity)

	m.leases.LeaveMaintenance(killed)
	require.NoError(t, m.step(t, "w-1", nil))
	assert.Equal(t, []string{"after: interrupted", "before restart of w-1 in one", "w-1", "after: succeeded"}, m.happened(t))

	require.Error(t, m.step(t, "w-2", errors.New("w-2 is not back")))
	assert.Equal(t, []string{"before restart of w-2 in one", "w-2", "after: failed"}, m.happened(t))
}

// TestMaintenanceThatCannotEnd fails nothing, and is ended by the next run.
func TestMaintenanceThatCannotEnd(t *testing.T) {
	t.Parallel()

	m := newMaintained(t)
	works := m.Maintenance.After
	m.Maintenance.After = "exit 7"

	err := m.run(t, request.Succeeded, func() { require.NoError(t, m.step(t, "w-1", nil)) })
	require.EqualError(t, err, "maintenance.after of cluster one fails: exit status 7. The next run repeats it; or undo by hand what "+
		"maintenance.before did, and kubectl -n kube-system delete lease talos-proxmox-maintenance")

	m.Maintenance.After = works
	m.leases.Set(func() {
		m.leases.Maintenance.HolderIdentity = strings.Replace(m.leases.Maintenance.HolderIdentity, "@", "@other-", 1)
	})

	require.NoError(t, m.run(t, request.Succeeded, func() {}))
	assert.Equal(t, []string{"before restart of w-1 in one", "w-1", "after: interrupted"}, m.happened(t))
}

// TestCommandsOfAMaintenance get what they need, and no secret of the stack; one of them may be missing.
func TestCommandsOfAMaintenance(t *testing.T) {
	t.Setenv("PULUMI_CONFIG", `{"talos-proxmox:webhook":"https://hooks.example/T0/secret"}`)
	t.Setenv("ALERTMANAGER", "http://127.0.0.1:9093")

	m := newMaintained(t)
	m.Maintenance.Before = "env >> " + m.journal + "; cat $KUBECONFIG"
	m.Maintenance.After = ""
	m.leases.LostResponses = 3 // of the Leases of the run, of the step and of the maintenance

	require.NoError(t, m.run(t, request.Succeeded, func() { require.NoError(t, m.step(t, "w-1", nil)) }))

	seen := m.happened(t)
	assert.Subset(t, seen, []string{
		"TALOS_PROXMOX_STACK=acme/talos-proxmox/prod", "TALOS_PROXMOX_CLUSTER=one", "TALOS_PROXMOX_OPERATION=restart",
		"TALOS_PROXMOX_NODES=w-1", "ALERTMANAGER=http://127.0.0.1:9093",
	})
	assert.NotContains(t, strings.Join(seen, "\n"), "secret")
	assert.Contains(t, m.progress.String(), "one: maintenance: maintenance.before has run: of the cluster\n")
	assert.Empty(t, m.leases.Maintenance.HolderIdentity)

	m.Maintenance = nil

	require.NoError(t, m.run(t, request.Succeeded, func() { require.NoError(t, m.step(t, "w-1", nil)) }))
	assert.Equal(t, []string{"w-1"}, m.happened(t))
}
