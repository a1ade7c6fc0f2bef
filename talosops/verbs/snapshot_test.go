package verbs

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
)

// testBackup returns a backup whose snapshots nobody can decrypt.
func testBackup(t *testing.T) *request.Backup {
	t.Helper()

	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	return &request.Backup{Name: "home-prod", Directory: t.TempDir(), Recipients: []string{identity.Recipient().String()}}
}

// newSnapshotCluster has control planes, the first of which leads.
func newSnapshotCluster() (*cluster.Cluster, *clustertest.Fake) {
	c, f, _ := clustertest.NewRunning()
	c.Timeout = 10 * time.Minute

	for i, n := range c.ControlPlanes {
		f.Statuses[n.Address.String()] = talosapi.EtcdStatus{HasLeader: true, Leads: i == 0, Applied: 100}
	}

	return c, f
}

// takeTestSnapshot takes a snapshot, and returns it in plain text.
func takeTestSnapshot(t *testing.T, c *cluster.Cluster, change func(*snapshotter)) (request.SnapshotResult, string, error) {
	t.Helper()

	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	s := &snapshotter{Cluster: c, now: time.Now, backup: request.Backup{
		Name: "home-prod", Directory: t.TempDir(), Recipients: []string{identity.Recipient().String()},
	}}
	if change != nil {
		change(s)
	}

	if err := s.wait(t.Context()); err != nil {
		entries, readErr := os.ReadDir(s.backup.Directory)
		if readErr == nil {
			assert.Empty(t, entries, "no incomplete file remains")
		}

		return s.result, "", err
	}

	file, err := backup.Open(s.result.Snapshot, identity.String())
	require.NoError(t, err)

	defer func() { _ = file.Close() }()

	plain, err := io.ReadAll(file)
	require.NoError(t, err)

	origin, err := backup.ReadOrigin(s.result.Snapshot, identity.String())
	require.NoError(t, err)
	require.NotNil(t, origin)
	assert.True(t, origin.Matches(clustertest.Origin()))
	assert.Equal(t, "home-prod", origin.Cluster)
	assert.Equal(t, "v1.14.4", origin.Talos)

	return s.result, string(plain), nil
}

func TestASnapshotComesFromTheBestMember(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(*clustertest.Fake)
		from   string
	}{
		"not from the leader": {func(*clustertest.Fake) {}, "cp-2"},
		"from the furthest": {
			func(c *clustertest.Fake) {
				c.Statuses["127.0.9.3"] = talosapi.EtcdStatus{HasLeader: true, Applied: 101}
			}, "cp-3",
		},
		"from the leader that is ahead": {func(c *clustertest.Fake) {
			c.Statuses["127.0.9.1"] = talosapi.EtcdStatus{HasLeader: true, Leads: true, Applied: 101}
		}, "cp-1"},
		"not from one that does not run": {
			func(c *clustertest.Fake) { c.Down["etcd 127.0.9.2"] = errors.New("connection refused") }, "cp-3",
		},
		"not from a learner": {func(c *clustertest.Fake) {
			c.Statuses["127.0.9.2"] = talosapi.EtcdStatus{HasLeader: true, Learner: true, Applied: 500}
		}, "cp-3"},
		"healthy ones first": {func(c *clustertest.Fake) {
			c.Statuses["127.0.9.2"] = talosapi.EtcdStatus{HasLeader: true, Applied: 500, Errors: []string{"CORRUPT"}}
		}, "cp-3"},
		"without a majority from the furthest": {func(c *clustertest.Fake) {
			c.Statuses["127.0.9.1"], c.Down["etcd 127.0.9.2"] = talosapi.EtcdStatus{Applied: 7}, errors.New("timeout")
			c.Statuses["127.0.9.3"] = talosapi.EtcdStatus{Applied: 8}
		}, "cp-3"},
		"from the next where one fails": {func(c *clustertest.Fake) {
			c.SnapshotFuncs["127.0.9.2"] = func(context.Context, io.Writer) error { return errors.New("no space left on device") }
		}, "cp-3"},
		"from the next where one is cut off": {func(c *clustertest.Fake) {
			c.SnapshotFuncs["127.0.9.2"] = func(_ context.Context, to io.Writer) error {
				_, err := to.Write(clustertest.EtcdSnapshot("cp-2")[:700])

				return err
			}
		}, "cp-3"},
		"from the next where one is damaged": {func(c *clustertest.Fake) {
			c.SnapshotFuncs["127.0.9.2"] = func(_ context.Context, to io.Writer) error {
				damaged := clustertest.EtcdSnapshot("cp-2")
				damaged[0]++
				_, err := to.Write(damaged)

				return err
			}
		}, "cp-3"},
		"from the next where one stands still": {func(c *clustertest.Fake) {
			c.SnapshotFuncs["127.0.9.2"] = func(ctx context.Context, _ io.Writer) error {
				<-ctx.Done()

				return nil // as the client does
			}
		}, "cp-3"},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f := newSnapshotCluster()
			test.change(f)

			taken, plain, err := takeTestSnapshot(t, c, nil)
			require.NoError(t, err)
			assert.Equal(t, test.from, taken.From)
			assert.Equal(t, string(clustertest.EtcdSnapshot("of 127.0.9."+test.from[3:])), plain)
			assert.EqualValues(t, len(plain), taken.Bytes)
			assert.Len(t, taken.Digest, 64)
		})
	}
}

func TestASnapshotTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of, c := newSnapshotCluster()
		c.Down["etcd 127.0.9.1"] = errors.New("connection refused")
		c.Statuses["127.0.9.2"] = talosapi.EtcdStatus{HasLeader: true, Learner: true}
		c.SnapshotFuncs["127.0.9.3"] = func(ctx context.Context, _ io.Writer) error {
			<-ctx.Done()

			return nil
		}
		_, _, err := takeTestSnapshot(t, of, func(s *snapshotter) { s.Timeout = 90 * time.Second })
		require.ErrorContains(t, err, "there is no snapshot of etcd after 1m30s; 3 of 3 checks are open")
		require.ErrorContains(t, err, "cp-1: etcd: does not answer: connection refused")
		require.ErrorContains(t, err, "cp-2: etcd: is a learner")
		require.ErrorContains(t, err, "cp-3: etcd: provides no snapshot: no data for 1m0s")
	})
}

// TestASnapshotThatAllRefuseIsNotRetried: refusals that are permanent are not retried.
func TestASnapshotThatAllRefuseIsNotRetried(t *testing.T) {
	t.Parallel()

	for code, once := range map[codes.Code]bool{
		codes.PermissionDenied: true, codes.Unimplemented: true, codes.Unavailable: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			of, c := newSnapshotCluster()
			for _, n := range clustertest.ControlPlanes().ControlPlanes {
				c.SnapshotFuncs[n.Address.String()] = func(context.Context, io.Writer) error { return status.Error(code, "no") }
			}

			_, _, err := takeTestSnapshot(t, of, func(s *snapshotter) { s.Timeout = 2 * s.Interval })
			require.ErrorContains(t, err, "there is no snapshot of etcd")
			require.ErrorContains(t, err, "provides no snapshot")
			assert.Equal(t, once, len(c.Snapshots) == len(clustertest.ControlPlanes().ControlPlanes), code)
		})
	}
}

func TestASnapshotThatCannotBeWrittenIsNotRetried(t *testing.T) {
	t.Parallel()

	c, f := newSnapshotCluster()
	_, _, err := takeTestSnapshot(t, c, func(s *snapshotter) { s.backup.Directory = unusableFolder(t) })
	require.ErrorContains(t, err, "unable to create the folder of backups")
	assert.Equal(t, request.StatusFolder, cli.Status(&cobra.Command{}, err), "the folder is to blame, no member")
	assert.Empty(t, f.Snapshots)
}
