package cluster_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

// TestRunHolder tells a run that renews its lease from one that was killed.
func TestRunHolder(t *testing.T) {
	t.Parallel()

	const other = "ann@desk (process 7) brings stack prod up"

	ended := endedHolder(t)

	renewing := func(f *clustertest.Leases) {
		f.TakeRun(other)
		time.AfterFunc(cluster.LeaseRenewInterval, func() { f.Set(func() { f.Run.Version += "+" }) })
	}

	for name, test := range map[string]struct {
		before  func(*clustertest.Leases)
		want    string
		fails   string
		atLeast time.Duration
	}{
		"no run":   {},
		"it works": {before: renewing, want: other + " since 2000-01-01T00:00:00Z", atLeast: cluster.LeaseRenewInterval},
		"it was killed": {
			before: func(f *clustertest.Leases) { f.TakeRun(other) }, atLeast: cluster.LeaseDuration,
		},
		"it was killed on this computer": {before: func(f *clustertest.Leases) { f.TakeRun(ended) }},
		"it ends meanwhile": {
			before: func(f *clustertest.Leases) {
				f.TakeRun(other)
				time.AfterFunc(15*time.Second, func() { f.Set(func() { f.Run.HolderIdentity, f.Run.Version = "", "9" }) })
			},
			atLeast: 15 * time.Second,
		},
		"no API answers": {
			before: func(f *clustertest.Leases) { f.APIErr = errors.New("connection refused") }, fails: "connection refused",
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, _, _ := clustertest.NewLeased(t, test.before)
			began := time.Now()

			holder, err := c.RunHolder(t.Context())
			if test.fails != "" {
				require.ErrorContains(t, err, test.fails)
			} else {
				require.NoError(t, err)
			}

			assert.Equal(t, test.want, holder)
			assert.WithinRange(t, time.Now(), began.Add(test.atLeast), began.Add(test.atLeast+2*c.Interval))
		})
	}
}
