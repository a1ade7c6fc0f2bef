package cluster_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

// TestARunHoldsTheCluster from its first step to its last, and waits for other holders.
func TestARunHoldsTheCluster(t *testing.T) {
	t.Parallel()

	const other = "ann@desk (process 7) brings stack acme/talos-proxmox/prod up"

	for name, test := range map[string]struct {
		before, meanwhile func(*clustertest.Leases)
		after             time.Duration // when its own work begins
		says              string
		fails             string // the error of its work, or of acquiring the lease
	}{
		"no one else works": {},
		"the other one ends": {
			before: func(f *clustertest.Leases) {
				f.Take(other)
				time.AfterFunc(30*time.Second, func() { f.Set(func() { f.Held.HolderIdentity = "" }) })
			},
			after: 30 * time.Second, says: "kube-system/talos-proxmox-run: lease: " + other + " since 2000-01-01T00:00:00Z",
		},
		"no API answers: nobody can be asked, and it may be what the run is to repair": {
			before: func(f *clustertest.Leases) { f.APIErr = errors.New("connection refused") }, after: cluster.RunLeaseTimeout,
			says: "cannot tell whether another run works on the cluster: the cluster cannot be changed: its lease cannot be taken",
		},
		"no API answers for a while: nobody takes over meanwhile": {
			meanwhile: func(f *clustertest.Leases) {
				f.Set(func() { f.APIErr = errors.New("connection refused") })
				time.AfterFunc(5*time.Minute, func() { f.Set(func() { f.APIErr = nil }) })
			},
		},
		"another one took it over": {
			meanwhile: func(f *clustertest.Leases) { f.Take(other) },
			fails:     "the lease of the cluster is lost, so the work was stopped: it is held by " + other,
		},
		"the other one goes on": {
			before: func(f *clustertest.Leases) {
				f.Take(other)

				for i := range 40 {
					time.AfterFunc(time.Duration(i)*10*time.Second, func() { f.Set(func() { f.Held.Version += "+" }) })
				}
			},
			fails: "wait for them; if they are gone, break the lease with kubectl -n kube-system delete lease talos-proxmox-run",
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, progress := clustertest.NewLeased(t, test.before)
			began := time.Now()

			const purpose = "brings stack acme/talos-proxmox/prod up"

			err := c.WithRunLeaseOf(t.Context(), purpose, nil, func(ctx context.Context) error {
				assert.WithinRange(t, time.Now(), began.Add(test.after), began.Add(test.after+2*c.Interval))

				if test.meanwhile != nil {
					test.meanwhile(f)
				}

				select {
				case <-ctx.Done():
					return errors.New("gives up")
				case <-time.After(10 * time.Minute):
					return nil
				}
			})

			if test.fails != "" {
				require.ErrorContains(t, err, test.fails)
			} else {
				require.NoError(t, err)
				assert.Empty(t, f.Held.HolderIdentity, "it is released")
			}

			assert.Contains(t, progress.String(), test.says)
			time.Sleep(time.Hour)
		})
	}
}

// TestARunThatReplacesAnAuthorityKeepsItsLease reconnects with clients that the cluster accepts by then.
func TestARunThatReplacesAnAuthorityKeepsItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, refused, progress := clustertest.NewLeased(t, nil)
		again, f, _ := clustertest.NewLeased(t, nil)
		reopened := 0
		reopen := func(context.Context) (*cluster.Cluster, error) {
			reopened++

			return again, nil
		}

		err := c.WithRunLeaseOf(t.Context(), "replaces the authority of kubernetes", reopen, func(context.Context) error {
			refused.Set(func() {
				refused.APIErr = errors.New("401 Unauthorized")
				f.Held = refused.Held
			})
			time.Sleep(10 * time.Minute)
			assert.WithinRange(t, f.Held.RenewTime.Time, time.Now().Add(-cluster.LeaseDuration), time.Now(),
				"nobody else may take it over")

			return nil
		})

		require.NoError(t, err)
		assert.Equal(t, 1, reopened)
		assert.Empty(t, f.Held.HolderIdentity, "it is released")
		assert.Empty(t, progress.String())
	})
}
