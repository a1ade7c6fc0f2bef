package cluster_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/verbtest"
)

func TestWithLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, progress := clustertest.NewLeased(t, nil)
		began := time.Now()

		require.NoError(t, c.WithLease(t.Context(), "takes one-w-1 out", func(ctx context.Context) error {
			f.Set(func() {
				assert.Regexp(t, `^\S+@\S+ \(process \d+ of [0-9a-f]{12}\) takes one-w-1 out$`, f.Held.HolderIdentity)
				assert.InDelta(t, cluster.LeaseDuration.Seconds(), f.Held.LeaseDurationSeconds, 0)
			})
			time.Sleep(5 * time.Minute)
			f.Set(func() {
				assert.WithinDuration(t, time.Now(), f.Held.RenewTime.Time, cluster.LeaseRenewInterval)
				assert.WithinDuration(t, began, f.Held.AcquireTime.Time, time.Millisecond)
			})

			return ctx.Err()
		}))
		assert.Empty(t, f.Held.HolderIdentity, "it is released")
		assert.Empty(t, progress.String())
		require.ErrorContains(t, c.WithLease(t.Context(), "x", func(context.Context) error { return errors.New("no") }), "no")
		assert.Empty(t, f.Held.HolderIdentity, "also after a failure")
	})
}

func TestWithLeaseWaitsForOthers(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		happens func(*clustertest.Leases) // meanwhile
		after   time.Duration             // when the lease is acquired
		wants   []string                  // of the error
	}{
		"who is done releases it": {
			happens: func(f *clustertest.Leases) {
				time.Sleep(30 * time.Second)
				f.Set(func() { f.Held.HolderIdentity = "" })
			},
			after: 30 * time.Second,
		},
		"who was killed renews it no more": {happens: func(*clustertest.Leases) {}, after: cluster.LeaseDuration},
		"while no API answers nothing is known of who renews": {
			happens: func(f *clustertest.Leases) {
				time.Sleep(20 * time.Second)
				f.Set(func() { f.APIErr = errors.New("connection refused") })
				time.Sleep(time.Minute)
				f.Set(func() { f.APIErr = nil })
			},
			after: 80*time.Second + cluster.LeaseDuration,
		},
		"someone deletes it": {
			happens: func(f *clustertest.Leases) {
				time.Sleep(30 * time.Second)
				f.Set(func() { f.Held = kube.Lease{} })
			},
			after: 30 * time.Second,
		},
		"each holder has the time of the request": {
			happens: func(f *clustertest.Leases) {
				for range 4 {
					for range 20 {
						time.Sleep(10 * time.Second)
						f.Set(func() { f.Held.RenewTime = metav1.Now(); f.Updates++; f.Held.Version = strconv.Itoa(f.Updates) })
					}

					f.Take(f.Held.HolderIdentity + "+")
				}

				f.Set(func() { f.Held.HolderIdentity = "" })
			},
			after: 800 * time.Second,
		},
		"one who works on": {
			happens: func(f *clustertest.Leases) {
				for range 60 {
					time.Sleep(10 * time.Second)
					f.Set(func() { f.Updates++; f.Held.Version = strconv.Itoa(f.Updates) })
				}
			},
			wants: []string{
				"another operator is changing the cluster after 5m0s; 1 of 1 checks are open:\n" +
					"  kube-system/talos-proxmox: lease: ann@desk (process 7) upgrades one-cp-1 since 2000-01-01T00:00:00Z, renewed at 00:00:00\n",
				"wait for them; if they are gone, break the lease with kubectl -n kube-system delete lease talos-proxmox, then run the same again",
			},
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, progress := clustertest.NewLeased(t, nil)
			f.Take("ann@desk (process 7) upgrades one-cp-1")

			began := time.Now()

			go test.happens(f)

			err := c.WithLease(t.Context(), "x", func(context.Context) error {
				assert.WithinRange(t, time.Now(), began.Add(test.after), began.Add(test.after+2*c.Interval))

				return nil
			})
			verbtest.RequireError(t, err, test.wants...)

			assert.Contains(t, progress.String(), "lease: ann@desk (process 7) upgrades one-cp-1 since 2000-01-01T00:00:00Z")
			synctest.Wait()
			time.Sleep(time.Hour)
		})
	}
}

func TestOneLeaseHolderAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A write whose response got lost is recognized as one's own.
		c, f, _ := clustertest.NewLeased(t, func(f *clustertest.Leases) { f.LostResponses = 1 })
		working := 0

		var wg sync.WaitGroup
		for _, what := range []string{"one", "two", "three"} {
			wg.Go(func() {
				assert.NoError(t, c.WithLease(t.Context(), what, func(context.Context) error {
					f.Set(func() { working++; assert.Equal(t, 1, working) })
					time.Sleep(50 * time.Second)
					f.Set(func() { working-- })

					return nil
				}))
			})
		}

		wg.Wait()
	})
}

func TestAHolderStopsWhenItCannotRenew(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		alone   bool // there is one control plane
		happens func(*clustertest.Leases)
		after   time.Duration
		want    string
	}{
		"someone broke it": {
			false,
			func(f *clustertest.Leases) { f.Set(func() { f.Held = kube.Lease{} }) },
			cluster.LeaseRenewInterval,
			"the lease of the cluster is lost, so the work was stopped: someone deleted it\ninterrupted",
		},
		"someone took it over": {
			false,
			func(f *clustertest.Leases) { f.Take("ann@desk (process 7) upgrades one-cp-1") },
			cluster.LeaseRenewInterval,
			"it is held by ann@desk (process 7) upgrades one-cp-1\ninterrupted",
		},
		"no API answers": {
			false,
			func(f *clustertest.Leases) { f.Set(func() { f.APIErr = errors.New("connection refused") }) },
			cluster.LeaseRenewDeadline,
			"it could not be renewed for 30s: connection refused\ninterrupted",
		},
		"the only control plane restarts": {true, func(f *clustertest.Leases) {
			f.Set(func() { f.APIErr = errors.New("connection refused") })
			time.AfterFunc(2*time.Minute, func() { f.Set(func() { f.APIErr = nil }) })
		}, 10 * time.Minute, ""},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewLeased(t, nil)
			if test.alone {
				c.ControlPlanes = c.ControlPlanes[:1]
			}

			err := c.WithLease(t.Context(), "x", func(ctx context.Context) error {
				began := time.Now()

				test.happens(f)

				select {
				case <-ctx.Done():
					assert.WithinRange(t, time.Now(), began.Add(test.after), began.Add(test.after+c.Interval))

					return errors.New("interrupted")
				case <-time.After(10 * time.Minute):
					return nil
				}
			})

			if test.want == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, test.want)
			require.ErrorIs(t, err, cluster.ErrLeaseLost)
		})
	}
}

func TestAnInterruptReleasesTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, _ := clustertest.NewLeased(t, nil)
		ctx, cancel := context.WithCancel(t.Context())

		err := c.WithLease(ctx, "x", func(ctx context.Context) error {
			cancel()
			<-ctx.Done()

			return errors.New("interrupted")
		})
		require.EqualError(t, err, "interrupted")
		assert.Empty(t, f.Held.HolderIdentity)
	})
}

// TestTheLeaseOverRealConnections compares the requests that the API server gets.
func TestTheLeaseOverRealConnections(t *testing.T) {
	t.Parallel()

	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"

	api := clustertest.NewAPI(nil)
	clients, address := clustertest.ServeKubernetes(t, api)
	c := &cluster.Cluster{
		Watch:         &checks.Watch{Timeout: time.Minute, Interval: time.Millisecond, Progress: io.Discard},
		ControlPlanes: []request.Node{{Name: "cp-1", Address: address}}, Kubernetes: clients,
	}
	require.NoError(t, c.WithLease(t.Context(), "upgrades one-cp-1", func(ctx context.Context) error {
		held, err := clients.Lease(ctx, address, cluster.LeaseName)
		assert.WithinDuration(t, time.Now(), held.AcquireTime.Time, time.Minute)
		assert.InDelta(t, cluster.LeaseDuration.Seconds(), held.LeaseDurationSeconds, 0)

		return err
	}))

	require.Len(t, api.Writes, 2)
	assert.Equal(t, http.MethodPost+" "+leases+cluster.LeaseName, api.Writes[0].Method+" "+api.Writes[0].Path)
	assert.Regexp(t, `^{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"talos-proxmox","namespace":"kube-system"},`+
		`"spec":{"holderIdentity":"\S+@\S+ \(process \d+ of [0-9a-f]{12}\) upgrades one-cp-1","leaseDurationSeconds":40,`+
		`"acquireTime":"[^"]+\.\d{6}Z","renewTime":"[^"]+\.\d{6}Z","leaseTransitions":1}}$`, api.Writes[0].Body)
	assert.Equal(t, http.MethodPut, api.Writes[1].Method)
	assert.Regexp(t, `"resourceVersion":"1".*"holderIdentity":"","leaseDurationSeconds":40,`, api.Writes[1].Body)
}
