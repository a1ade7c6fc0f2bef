package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
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
				f.TakeRun(other)
				time.AfterFunc(30*time.Second, func() { f.Set(func() { f.Run.HolderIdentity = "" }) })
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
			meanwhile: func(f *clustertest.Leases) { f.TakeRun(other) },
			fails:     "the lease of the cluster is lost, so the work was stopped: it is held by " + other,
		},
		"the other one goes on": {
			before: func(f *clustertest.Leases) {
				f.TakeRun(other)

				for i := range 40 {
					time.AfterFunc(time.Duration(i)*10*time.Second, func() { f.Set(func() { f.Run.Version += "+" }) })
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
				assert.Empty(t, f.Run.HolderIdentity, "it is released")
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
				f.Run = refused.Run
			})
			time.Sleep(10 * time.Minute)

			run, err := f.Lease(t.Context(), netip.Addr{}, "talos-proxmox-run")
			require.NoError(t, err)
			assert.WithinRange(t, run.RenewTime.Time, time.Now().Add(-cluster.LeaseDuration), time.Now(),
				"nobody else may take it over")

			return nil
		})

		require.NoError(t, err)
		assert.Equal(t, 1, reopened)
		assert.Empty(t, f.Run.HolderIdentity, "it is released")
		assert.Empty(t, progress.String())
	})
}

// TestStepsBelongToTheirRun: a step changes nothing once its run has lost the cluster, which the command of a deletion
// learns only from the lease.
func TestStepsBelongToTheirRun(t *testing.T) {
	t.Parallel()

	const lost = "the lease of the cluster is lost, so the work was stopped: its run no longer holds the cluster, and " +
		"another one may begin ("

	own, ended := cluster.HolderIdentity("brings stack acme/talos-proxmox/prod up"), endedHolder(t)

	for name, test := range map[string]struct {
		run       string // who holds the run's lease when the step begins
		renewed   bool   // and renews it
		meanwhile func(*clustertest.Leases)
		fails     string
	}{
		"without a run":     {},
		"of a run that has": {run: own},
		"of a run that ends": {run: own, meanwhile: func(f *clustertest.Leases) {
			f.Set(func() { f.Run.HolderIdentity = "" })
		}},
		"another run begins that nobody waited for": {meanwhile: func(f *clustertest.Leases) {
			f.TakeRun("ann@desk (process 7) brings up")
		}},
		"of a run whose holder was killed": {
			run: ended, fails: lost + ended + " has ended): `pulumi up` resumes",
		},
		"of a run whose holder is killed meanwhile": {
			run: own, meanwhile: func(f *clustertest.Leases) { f.TakeRun(ended) }, fails: lost + ended + " holds it)",
		},
		"of a run whose lease is deleted": {
			run: own, meanwhile: func(f *clustertest.Leases) { f.Set(func() { f.Run = kube.Lease{} }) },
			fails: lost + "someone deleted its lease kube-system/talos-proxmox-run)",
		},
		"another computer's run holds the cluster": {
			run: "ann@desk (process 7 of 0123456789ab) brings stack prod up", renewed: true,
			fails: "another run holds the cluster, so nothing was changed: ann@desk (process 7 of 0123456789ab) brings stack prod up since",
		},
		"an earlier version's run holds the cluster": {
			run: "ann@desk (process 7) brings stack prod up", renewed: true,
			fails: "another run holds the cluster, so nothing was changed",
		},
		"another computer's run was killed": {run: "ann@desk (process 7 of 0123456789ab) brings stack prod up"},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewLeased(t, func(f *clustertest.Leases) {
				if test.run != "" {
					f.TakeRun(test.run)
				}

				if test.renewed {
					time.AfterFunc(cluster.LeaseRenewInterval, func() { f.Set(func() { f.Run.Version += "+" }) })
				}
			})

			err := c.WithLease(t.Context(), "takes one-w-1 out", func(ctx context.Context) error {
				if test.meanwhile != nil {
					test.meanwhile(f)
				}

				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Minute):
					return nil
				}
			})
			if test.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.fails)
			}

			assert.Empty(t, f.Held.HolderIdentity, "it is released")
			time.Sleep(time.Hour)
		})
	}
}

// endedHolder is the identity of a process of this computer that has ended.
func endedHolder(t *testing.T) string {
	t.Helper()

	ended := exec.CommandContext(t.Context(), "true")
	require.NoError(t, ended.Run())

	return strings.Replace(cluster.HolderIdentity("brings stack acme/talos-proxmox/prod up"),
		fmt.Sprintf("(process %d ", os.Getpid()), fmt.Sprintf("(process %d ", ended.Process.Pid), 1)
}

// TestAKilledRunIsWaitedForOnce: its lease and that of its last step expire at the same time, and neither is waited for
// on the computer on which it was killed.
func TestAKilledRunIsWaitedForOnce(t *testing.T) {
	t.Parallel()

	ended := endedHolder(t)

	for name, test := range map[string]struct {
		holder, step string
		after        time.Duration
	}{
		"of another computer": {
			holder: "ann@desk (process 7 of 0123456789ab) brings up", step: "ann@desk (process 9 of 0123456789ab) changes one-w-1",
			after: cluster.LeaseDuration,
		},
		"of this computer":   {holder: ended, step: ended},
		"whose step is left": {step: "ann@desk (process 9) changes one-w-1", after: cluster.LeaseDuration},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, _, _ := clustertest.NewLeased(t, func(f *clustertest.Leases) {
				if test.holder != "" {
					f.TakeRun(test.holder)
				}

				f.Take(test.step)
			})
			began := time.Now()

			err := c.WithRunLeaseOf(t.Context(), "brings up", nil, func(ctx context.Context) error {
				return c.WithLease(ctx, "changes one-w-2", func(context.Context) error {
					assert.WithinRange(t, time.Now(), began.Add(test.after), began.Add(test.after+3*c.Interval))

					return nil
				})
			})
			require.NoError(t, err)
		})
	}
}
