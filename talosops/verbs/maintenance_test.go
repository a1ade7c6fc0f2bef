package verbs

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

// window returns a maintenance window on every day. A bubble's clock begins at midnight, UTC.
func window(start, end string) *request.Maintenance {
	return &request.Maintenance{
		Maintenance: spec.Maintenance{Windows: []spec.MaintenanceWindow{{StartTime: start, EndTime: end}}},
	}
}

const outside = "it is outside of the maintenance windows of the cluster; the next one begins Sat 2000-01-01 22:00 UTC"

// TestMaintenanceOfChanges: outside of the windows no machine restarts, except to repair its cluster.
func TestMaintenanceOfChanges(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		restart, dead, force, refused bool
	}{
		"a machine that restarts":         {restart: true, refused: true},
		"a machine that does not restart": {},
		"a dead machine":                  {restart: true, dead: true},
		"a machine that is to restart":    {restart: true, force: true},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewRunning()
			c.Maintenance = window("22:00", "23:00")

			of := newChange(c, "w-1", true, test.restart)
			of.Session, _ = sessionWithOutcome(c, `{"changed":true}`)
			of.perform, of.req.Force, of.req.unreachable = of.awaitOutcome, test.force, test.dead

			if test.dead {
				makeUnreachable(f, "127.0.9.4")
			}

			err := of.coordinate(t.Context())
			if !test.refused {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, "w-1 is not changed, because that restarts it: "+outside)
			assert.Empty(t, f.Actions)
		})
	}
}

// TestMaintenanceOfUpgrades: no upgrade begins outside of the windows, also in the middle of a rollout.
func TestMaintenanceOfUpgrades(t *testing.T) {
	t.Parallel()

	verbtest.InBubble(t, "of Talos, before the window", func(t *testing.T) {
		u, f, _ := newUpgradeCluster(t)
		u.Maintenance = window("22:00", "23:00")

		require.ErrorContains(t, u.run(t.Context()), "cp-1 is not upgraded: "+outside)
		assert.Empty(t, f.upgrades)
	})

	verbtest.InBubble(t, "of Talos, after its end", func(t *testing.T) {
		u, f, _ := newUpgradeCluster(t)
		u.Maintenance = window("00:00", "00:01")

		require.ErrorContains(t, u.run(t.Context()), "cp-2 is not upgraded: it is outside of the maintenance windows")
		assert.Len(t, f.upgrades, 1)

		u.Maintenance = nil
		require.NoError(t, u.run(t.Context()))
		assert.Len(t, f.upgrades, 5)
	})

	verbtest.InBubble(t, "of Kubernetes", func(t *testing.T) {
		u, f := newKubernetesCluster(func(*kubernetesCluster, *kubernetesRequest) {})
		u.Maintenance = window("22:00", "23:00")
		before := f.images["127.0.9.1"]

		require.ErrorContains(t, u.run(t.Context()), "Kubernetes is not upgraded: "+outside)
		assert.Equal(t, before, f.images["127.0.9.1"])
	})
}

// TestCommandsOfMaintenance: each verb that interrupts machines begins the maintenance of its cluster, and interrupts
// nothing if that fails.
func TestCommandsOfMaintenance(t *testing.T) {
	t.Parallel()

	type (
		run   = func(context.Context) error
		begin = func(*testing.T, *request.Maintenance) (run, *clustertest.Fake)
	)

	change := func(dead bool) begin {
		return func(_ *testing.T, m *request.Maintenance) (run, *clustertest.Fake) {
			c, f, _ := clustertest.NewRunning()
			c.Maintenance = m

			of := newChange(c, "w-1", true, true)
			of.Session, _ = sessionWithOutcome(c, `{"changed":true}`)
			of.perform, of.req.unreachable = of.awaitOutcome, dead

			if dead {
				makeUnreachable(f, "127.0.9.4")
				f.NodeList[3].Ready, f.NodeList[3].Unreachable = false, true
			}

			return of.changeInCluster, f
		}
	}

	for name, test := range map[string]struct {
		verb   begin
		before string
		goesOn bool // although the command fails
	}{
		"a change":                   {change(false), "restart: w-1", false},
		"a change of a dead machine": {change(true), "restart: w-1", true},
		"a removal": {func(_ *testing.T, m *request.Maintenance) (run, *clustertest.Fake) {
			l, f, _ := newLeaver(request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}, nil)
			l.Maintenance = m

			return l.leave, f
		}, "remove: w-1", false},
		"an upgrade of Talos": {func(t *testing.T, m *request.Maintenance) (run, *clustertest.Fake) {
			u, f, _ := newUpgradeCluster(t)
			u.Maintenance = m

			return u.run, f.Fake
		}, "upgrade-talos: cp-1 cp-2 cp-3 w-1 w-2", false},
		"an upgrade of Kubernetes": {func(_ *testing.T, m *request.Maintenance) (run, *clustertest.Fake) {
			u, f := newKubernetesCluster(nil)
			u.Maintenance = m
			connect := u.connect
			u.connect = func(ctx context.Context, controlPlanes []request.Node) (*cluster.Cluster, error) {
				c, err := connect(ctx, controlPlanes)
				c.Maintenance = m

				return c, err
			}

			return u.run, f.Fake
		}, "upgrade-kubernetes: cp-1 cp-2 cp-3 w-1 w-2", false},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			journal := filepath.Join(t.TempDir(), "journal")
			m := &request.Maintenance{Cluster: "one", Stack: "acme/talos-proxmox/prod"}
			m.Before = `echo "$TALOS_PROXMOX_OPERATION: $TALOS_PROXMOX_NODES" >> ` + journal
			m.After = `echo "$TALOS_PROXMOX_OUTCOME" >> ` + journal

			run, f := test.verb(t, m)
			require.NoError(t, run(t.Context()))

			content, err := os.ReadFile(journal)
			require.NoError(t, err)
			assert.Equal(t, test.before+"\nsucceeded\n", string(content), "it belongs to no run, and ends its maintenance itself")
			assert.Empty(t, f.Maintenance.HolderIdentity)

			m.Before = "echo no route to Alertmanager; exit 7"
			run, f = test.verb(t, m)

			err = run(t.Context())
			if test.goesOn {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, "maintenance.before of cluster one fails: exit status 7: no route to Alertmanager")
			assert.Empty(t, f.Actions)
		})
	}
}
