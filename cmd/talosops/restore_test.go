package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/request"
)

// lostCluster answers for control planes whose etcd is to be restored, by their addresses. It boots them in a minute.
type lostCluster struct {
	down     map[string]error
	booting  map[string]time.Time // until when
	data     map[string]bool
	leader   bool
	restored string   // what it was begun anew from
	did      []string // in order
	wipes    map[string]error
	recovers []error // of the next attempts
	loses    int     // how many restores get lost by a reboot
}

func newLostCluster() *lostCluster {
	c := &lostCluster{
		down: map[string]error{}, booting: map[string]time.Time{}, data: map[string]bool{}, wipes: map[string]error{},
	}
	for _, n := range testControlPlanes().ControlPlanes {
		c.data[n.Address] = true
	}

	return c
}

func (c *lostCluster) services(_ context.Context, address string) ([]service, error) {
	if time.Now().Before(c.booting[address]) {
		return nil, errors.New("connection refused")
	}

	if c.restored != "" && c.leader {
		c.data[address] = true // it joins
	}

	state := "Preparing"
	if c.data[address] {
		state = "Running"
	}

	return []service{{ID: "etcd", State: state}}, c.down[address]
}

func (c *lostCluster) members(context.Context, string) ([]member, error) {
	if !c.leader {
		return nil, errors.New("etcdserver: no leader")
	}

	var list []member

	for _, n := range testControlPlanes().ControlPlanes {
		if c.data[n.Address] {
			list = append(list, member{Hostname: n.Name})
		}
	}

	return list, nil
}

func (c *lostCluster) holdsEtcd(_ context.Context, address string) (bool, error) {
	return c.data[address], nil
}

func (c *lostCluster) bootstrap(context.Context, string) error {
	panic("a restore bootstraps nothing empty")
}

func (c *lostCluster) etcdStatus(context.Context, string) (etcdStatus, error) {
	return etcdStatus{HasLeader: c.leader}, nil
}

func (c *lostCluster) wipe(_ context.Context, address string) error {
	if err := c.wipes[address]; err != nil {
		delete(c.wipes, address)

		return err
	}

	c.did = append(c.did, "wipe "+address)
	c.data[address], c.booting[address] = false, time.Now().Add(time.Minute)

	return nil
}

func (c *lostCluster) recover(_ context.Context, address string, snapshot io.Reader, _ bool) error {
	if len(c.recovers) > 0 {
		err := c.recovers[0]
		c.recovers = c.recovers[1:]

		return err
	}

	c.did = append(c.did, "recover "+address)

	content, err := io.ReadAll(snapshot)
	if err != nil {
		return err
	}

	if c.loses > 0 {
		c.loses--
		c.booting[address] = time.Now().Add(time.Minute)

		return nil
	}

	c.restored, c.leader, c.data[address] = string(content), true, true

	return nil
}

func testRestore(t *testing.T, c *lostCluster) (*restorer, *bytes.Buffer) {
	t.Helper()

	req := &restoreRequest{limits: testLimits(), Restore: request.Restore{
		Common: testControlPlanes(), Cluster: "prod", Confirm: "prod", Snapshot: "file",
	}}
	req.timeout, req.interval = 30*time.Minute, time.Second

	var progress bytes.Buffer

	r := newRestorer(req, c, &progress)
	r.open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(etcdSnapshot("kept"))), nil }

	return r, &progress
}

func TestEtcdIsRestored(t *testing.T) {
	t.Parallel()

	all := []string{"wipe 127.0.9.1", "wipe 127.0.9.2", "wipe 127.0.9.3", "recover 127.0.9.1"}
	for name, test := range map[string]struct {
		change func(*lostCluster)
		did    []string
	}{
		"when no member has a majority": {func(*lostCluster) {}, all},
		"when every machine is new": {
			func(c *lostCluster) { clear(c.data) }, []string{"recover 127.0.9.1"},
		},
		"when one machine is left": {
			func(c *lostCluster) { c.data["127.0.9.1"], c.data["127.0.9.2"] = false, false },
			[]string{"wipe 127.0.9.3", "recover 127.0.9.1"},
		},
		"when a machine boots late": {
			func(c *lostCluster) { c.booting["127.0.9.2"] = time.Now().Add(5 * time.Minute) }, all,
		},
		"when a wipe must be asked for again": {
			func(c *lostCluster) { c.wipes["127.0.9.2"] = errors.New("locked") },
			[]string{"wipe 127.0.9.1", "wipe 127.0.9.3", "wipe 127.0.9.2", "recover 127.0.9.1"},
		},
		"when a machine is not ready for it at first": {
			func(c *lostCluster) {
				c.recovers = []error{status.Error(codes.FailedPrecondition, "not ready for recovery yet")}
			}, all,
		},
		"when a reboot loses the snapshot": {
			func(c *lostCluster) { c.loses = 1 }, append(all[:4:4], "recover 127.0.9.1"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newLostCluster()
				test.change(c)
				r, progress := testRestore(t, c)
				require.NoError(t, r.wait(t.Context()), progress)
				assert.Equal(t, string(etcdSnapshot("kept")), c.restored)
				assert.Equal(t, test.did, c.did)
				assert.Contains(t, progress.String(), "cp-1: etcd: begins the cluster from the snapshot")
			})
		})
	}
}

func TestARestoreRefuses(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(*lostCluster, *restorer)
		wants  string
		did    []string
	}{
		"a healthy cluster": {
			change: func(c *lostCluster, _ *restorer) { c.leader = true },
			wants:  "etcd of cluster prod is healthy (cp-1 sees a leader; members: cp-1, cp-2, cp-3), so nothing was changed",
		},
		"one that only starts": {
			change: func(c *lostCluster, _ *restorer) { time.AfterFunc(30*time.Second, func() { c.leader = true }) },
			wants:  "is healthy",
		},
		"while a control plane is silent": {
			change: func(c *lostCluster, _ *restorer) { c.down["127.0.9.3"] = errors.New("no route to host") },
			wants:  "cp-3: etcd: Talos does not answer on 127.0.9.3: no route to host",
		},
		"a damaged snapshot": {
			change: func(_ *lostCluster, r *restorer) {
				r.open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(make([]byte, 544))), nil }
			},
			wants: "file: the snapshot is damaged: its digest does not fit its content: choose another one",
		},
		"a cluster that someone else begins meanwhile": {
			change: func(c *lostCluster, _ *restorer) {
				clear(c.data)
				c.recovers = make([]error, 0)
				c.booting["127.0.9.2"] = time.Now().Add(time.Minute)
				c.data["127.0.9.3"] = true

				time.AfterFunc(150*time.Second, func() { c.data["127.0.9.1"], c.leader = true, true })
			},
			wants: "someone began a new, empty cluster on cp-1 before the snapshot was there",
			did:   []string{"wipe 127.0.9.3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newLostCluster()
				r, _ := testRestore(t, c)
				test.change(c, r)
				require.ErrorContains(t, r.wait(t.Context()), test.wants)
				assert.Equal(t, test.did, c.did)
			})
		})
	}
}

func TestARestoreIsConfirmedByTheClustersName(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	_, _, err := run(t, "restore", map[string]any{
		"talosconfig": authority.talosconfig(t), "controlPlanes": testControlPlanes().ControlPlanes,
		"cluster": "prod", "confirm": "yes", "identities": "AGE-SECRET-KEY-1QQ",
	}, "")
	require.EqualError(t, err, `the request has 2 problems:
  snapshot: is missing: set the path of a snapshot
  confirm: "yes" is not the cluster's name: a restore loses what was written since the snapshot; set "prod" to confirm it`)
}
