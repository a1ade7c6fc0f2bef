package verbs

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
)

// newCluster has control planes that wait for etcd to be bootstrapped.
type newCluster struct {
	*clustertest.Fake

	dataErrors   map[string]error // of requests for the data directory, by address
	data         map[string]bool
	members      map[string][]talosapi.Member
	refusals     []error // of bootstrap requests, in order
	requested    []string
	startsSlowly bool // etcd has no data yet when its bootstrap is accepted
	hangs        bool // requests for members last until the caller's deadline
}

func startNewCluster() *newCluster {
	c := &newCluster{
		Fake: clustertest.NewFake(nil, clustertest.ControlPlanes().ControlPlanes), dataErrors: map[string]error{},
		data: map[string]bool{}, members: map[string][]talosapi.Member{},
	}
	for address := range c.NodeServices {
		c.etcd(address, "Preparing")
	}

	return c
}

// etcd sets the state of a control plane's etcd service; empty = there is none.
func (c *newCluster) etcd(address, state string) {
	c.NodeServices[address] = []talosapi.Service{{ID: "apid", State: "Running"}}

	if state != "" {
		c.NodeServices[address] = append(c.NodeServices[address], talosapi.Service{ID: "etcd", State: state})
	}
}

func (c *newCluster) Members(ctx context.Context, address netip.Addr) ([]talosapi.Member, error) {
	if c.hangs {
		<-ctx.Done()

		return nil, ctx.Err()
	}

	c.Mu.Lock()
	defer c.Mu.Unlock()

	if len(c.members[address.String()]) == 0 {
		return nil, errors.New("etcdserver: no leader")
	}

	return c.members[address.String()], nil
}

func (c *newCluster) HasEtcdData(_ context.Context, address netip.Addr) (bool, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	return c.data[address.String()], c.dataErrors[address.String()]
}

func (c *newCluster) Bootstrap(_ context.Context, address netip.Addr) error {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	c.requested = append(c.requested, address.String())
	if len(c.refusals) > 0 {
		err := c.refusals[0]
		c.refusals = c.refusals[1:]

		return err
	}

	c.data[address.String()] = !c.startsSlowly
	c.etcd(address.String(), "Running")

	return nil
}

func testBootstrap(c *newCluster, timeout time.Duration) (*bootstrapper, *bytes.Buffer) {
	of, progress := clustertest.NewCluster(c, c)
	of.Timeout = timeout

	return &bootstrapper{Cluster: of}, progress
}

func TestBootstrapOnceNothingRulesItOut(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*newCluster){
		"at once": func(*newCluster) {},
		"after the first one has booted": func(c *newCluster) {
			c.until(3, func() { c.Down["127.0.9.1"] = errors.New("connection refused") }, func() { delete(c.Down, "127.0.9.1") })
		},
		"after another one has booted": func(c *newCluster) {
			c.until(3, func() { c.Down["127.0.9.3"] = errors.New("connection refused") }, func() { delete(c.Down, "127.0.9.3") })
		},
		"after etcd's volume is there": func(c *newCluster) {
			c.until(3, func() { c.etcd("127.0.9.2", "Waiting") }, func() { c.etcd("127.0.9.2", "Preparing") })
		},
		"after etcd is a service": func(c *newCluster) {
			c.until(3, func() { c.etcd("127.0.9.2", "") }, func() { c.etcd("127.0.9.2", "Preparing") })
		},
		"after a directory can be listed": func(c *newCluster) {
			c.until(3, func() { c.dataErrors["127.0.9.2"] = errors.New("EOF") }, func() { delete(c.dataErrors, "127.0.9.2") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := startNewCluster()
			change(c)
			b, progress := testBootstrap(c, time.Minute)
			require.NoError(t, b.wait(t.Context()))
			assert.Equal(t, []string{"127.0.9.1"}, c.requested)
			assert.Contains(t, progress.String(), "cp-1: etcd: is bootstrapped\n")
			assert.Contains(t, progress.String(), "cp-1: etcd: bootstrapped: has etcd data\n")
		})
	}
}

// until applies a change that lasts until a round.
func (c *newCluster) until(round int, before, after func()) {
	before()

	c.OnRound = func(_ *clustertest.Fake, asked int) {
		if asked == round {
			after()
		}

		if asked < round && len(c.requested) > 0 {
			panic("bootstrapped too early")
		}
	}
}

func TestBootstrapIsDoneWhereEtcdIs(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, change := range map[string]func(*newCluster){
		"the first control plane lists members": func(c *newCluster) {
			c.members["127.0.9.1"] = []talosapi.Member{{Hostname: "cp-1"}}
		},
		"the first one has data": func(c *newCluster) { c.data["127.0.9.1"] = true },
		"the first one is new, the others hold the cluster": func(c *newCluster) {
			c.members["127.0.9.2"] = []talosapi.Member{{Hostname: "cp-3"}, {Hostname: "cp-2"}}
		},
		"the first one is new, the others have no quorum": func(c *newCluster) {
			c.data["127.0.9.3"] = true
			c.etcd("127.0.9.3", "Running")
		},
		"the first one is gone": func(c *newCluster) {
			c.Down["127.0.9.1"] = errors.New("no route to host")
			c.data["127.0.9.2"] = true
		},
		"a member that has not started": func(c *newCluster) {
			c.members["127.0.9.1"] = []talosapi.Member{{PeerURLs: []string{"https://127.0.9.2:2380"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := startNewCluster()
			change(c)
			b, progress := testBootstrap(c, time.Minute)
			require.NoError(t, b.wait(t.Context()))
			assert.Empty(t, c.requested)
			assert.Equal(t, 1, c.Rounds)
			golden.Equal(t, name, progress.String())
		})
	}
}

func TestBootstrapIsRetriedAfterRefusals(t *testing.T) {
	t.Parallel()

	c := startNewCluster()
	c.refusals = []error{
		status.Error(codes.FailedPrecondition, "time is not in sync yet"),
		status.Error(codes.AlreadyExists, "etcd data directory is not empty"),
	}
	b, progress := testBootstrap(c, time.Minute)
	require.NoError(t, b.wait(t.Context()), "what exists already is what was wanted")
	assert.Len(t, c.requested, 2)
	assert.Contains(t, progress.String(), "cp-1: etcd: cannot be bootstrapped yet: ")
	assert.Contains(t, progress.String(), "time is not in sync yet\n")
}

func TestBootstrapIsRequestedOncePerRun(t *testing.T) {
	t.Parallel()

	c := startNewCluster()
	c.startsSlowly = true
	c.OnRound = func(_ *clustertest.Fake, asked int) {
		switch asked {
		case 2:
			c.Down["127.0.9.2"] = errors.New("connection refused")
		case 5:
			c.data["127.0.9.1"] = true
		}
	}
	b, progress := testBootstrap(c, time.Minute)
	require.NoError(t, b.wait(t.Context()))
	assert.Equal(t, []string{"127.0.9.1"}, c.requested)
	assert.Equal(t, 1, strings.Count(progress.String(), "cp-1: etcd: is bootstrapped\n"))
}

// TestBootstrapBoundsRequestsForMembers: without etcd, Talos answers a request for members only at the caller's
// deadline.
func TestBootstrapBoundsRequestsForMembers(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := startNewCluster()
		c.hangs = true
		b, _ := testBootstrap(c, time.Minute)
		began := time.Now()

		require.NoError(t, b.wait(t.Context()))
		assert.Equal(t, []string{"127.0.9.1"}, c.requested)
		assert.Less(t, time.Since(began), 3*time.Second, "once, all control planes at the same time")
	})
}

func TestBootstrapTimesOut(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, change := range map[string]func(*newCluster){
		"the first one does not answer":    func(c *newCluster) { c.Down["127.0.9.1"] = errors.New("connection refused") },
		"another one may hold the cluster": func(c *newCluster) { c.Down["127.0.9.2"] = errors.New("no route to host") },
		"another one does not tell": func(c *newCluster) {
			c.dataErrors["127.0.9.2"] = errors.New("permission denied")
		},
		"etcd runs, and no one knows where": func(c *newCluster) { c.etcd("127.0.9.3", "Running") },
		"a control plane that has no etcd":  func(c *newCluster) { c.etcd("127.0.9.3", "") },
		"etcd does not start":               func(c *newCluster) { c.startsSlowly = true },
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c := startNewCluster()
			change(c)
			b, _ := testBootstrap(c, 30*time.Millisecond)
			golden.Equal(t, name, b.wait(t.Context()), c.requested)
		})
	}
}

func TestBootstrapOverRealConnections(t *testing.T) {
	t.Parallel()

	talos := clustertest.NewAuthority(t)
	for name, test := range map[string]struct {
		first, second *clustertest.TalosNode
		requests      int
	}{
		"a new cluster": {
			first: &clustertest.TalosNode{AwaitsBootstrap: true}, second: &clustertest.TalosNode{AwaitsBootstrap: true},
			requests: 1,
		},
		"a cluster without data directories": {
			first:  &clustertest.TalosNode{AwaitsBootstrap: true, NoEtcdDirectory: true},
			second: &clustertest.TalosNode{AwaitsBootstrap: true, NoEtcdDirectory: true}, requests: 1,
		},
		"a first control plane with data": {
			first: &clustertest.TalosNode{}, second: &clustertest.TalosNode{AwaitsBootstrap: true},
		},
		"a first control plane that is new": {
			first: &clustertest.TalosNode{AwaitsBootstrap: true}, second: &clustertest.TalosNode{},
		},
		"data that came between the requests": {
			first:  &clustertest.TalosNode{AwaitsBootstrap: true, RefusesBootstrap: true},
			second: &clustertest.TalosNode{AwaitsBootstrap: true}, requests: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			req := &bootstrapRequest{Bootstrap: request.Bootstrap{
				Talosconfig: talos.Talosconfig(t),
				Common: request.Common{
					ControlPlanes: []request.Node{
						{Name: "cp-2", Address: clustertest.ServeTalos(t, talos, test.first)},
						{Name: "cp-1", Address: clustertest.ServeTalos(t, talos, test.second)},
					},
				},
			}}
			stdout, stderr, err := run(t, "bootstrap", req, verbtest.NoInterrupt, "--interval", "10ms")
			require.NoError(t, err, stderr)
			assert.Equal(t, `{"bootstrapped":true,"controlPlanes":["cp-1","cp-2"]}`+"\n", stdout)
			assert.Equal(t, []int{test.requests, 0}, []int{test.first.Bootstrapped, test.second.Bootstrapped})
			verbtest.AssertNoSecrets(t, req.Talosconfig, stderr)
		})
	}
}

func TestBootstrapOfAClusterThatLostItsDataIsRefused(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	const bootstrapped = `{"bootstrapped":true,"controlPlanes":["cp-1"]}`

	for name, test := range map[string]struct {
		earlier, empty string
		change         func(*newCluster)
	}{
		"without an earlier run":          {},
		"allowed":                         {earlier: bootstrapped, empty: "2026-11-24"},
		"allowed by another text":         {earlier: `{"bootstrapped":true,"empty":"2026-11-23"}`, empty: "2026-11-24"},
		"not allowed":                     {earlier: bootstrapped},
		"by another program":              {earlier: "done"},
		"allowed before, not now":         {earlier: `{"bootstrapped":true,"empty":"2026-11-24"}`},
		"allowed by a text that was used": {earlier: `{"bootstrapped":true,"empty":"2026-11-24"}`, empty: "2026-11-24"},
		"a control plane has the data": {
			earlier: bootstrapped, change: func(c *newCluster) { c.data["127.0.9.3"] = true },
		},
		"a control plane boots late": {
			earlier: bootstrapped,
			change: func(c *newCluster) {
				c.until(3, func() { c.Down["127.0.9.3"] = errors.New("connection refused") }, func() { delete(c.Down, "127.0.9.3") })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := startNewCluster()
			if test.change != nil {
				test.change(c)
			}

			b, _ := testBootstrap(c, time.Minute)
			b.previous, b.empty = previousBootstrap(test.earlier), test.empty

			golden.Equal(t, name, b.wait(t.Context()), c.requested)
		})
	}
}
