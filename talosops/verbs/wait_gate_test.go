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

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
)

func testRequest() *waitRequest {
	return &waitRequest{
		Wait: request.Wait{
			Common: clustertest.ControlPlanes(), Workers: clustertest.Workers(),
		},
	}
}

// newTestGate returns the gate of a healthy cluster, after a change.
func newTestGate(change func(*waitRequest, *clustertest.Fake)) (*gate, *clustertest.Fake, *bytes.Buffer) {
	req := testRequest()
	f := clustertest.NewFake(req.ControlPlanes, req.Workers)
	c, progress := clustertest.NewCluster(f, f)

	if change != nil {
		change(req, f)
	}

	return &gate{Cluster: c, req: req}, f, progress
}

// TestGateToleratesLeavingMembers: they leave at the end of the run.
func TestGateToleratesLeavingMembers(t *testing.T) {
	t.Parallel()

	g, f, _ := newTestGate(nil)
	f.MemberList = append(f.MemberList, talosapi.Member{Hostname: "cp-4", PeerURLs: []string{"https://127.0.9.9:2380"}})

	require.NoError(t, g.wait(t.Context()))
}

func TestGatePassesForAHealthyCluster(t *testing.T) {
	t.Parallel()

	g, cluster, progress := newTestGate(func(r *waitRequest, _ *clustertest.Fake) { r.KubernetesVersion = "v1.35.0" })
	require.NoError(t, g.wait(t.Context()))
	assert.Equal(t, 1, cluster.Rounds, "one round is enough")
	assert.Empty(t, progress.String(), "nothing is waited for")
	assert.Equal(
		t, "healthy: etcd members: 3; nodes: 5, of which 5 are not Ready (not waited for: nodes are Ready once a CNI runs)",
		g.summary(),
	)
}

func TestGateNamesWhatIsMissing(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, change := range map[string]func(*waitRequest, *clustertest.Fake){
		"a learner":        func(_ *waitRequest, c *clustertest.Fake) { c.MemberList[2].Learner = true },
		"a missing member": func(_ *waitRequest, c *clustertest.Fake) { c.MemberList = c.MemberList[:2] },
		"an unexpected member": func(_ *waitRequest, c *clustertest.Fake) {
			c.MemberList = append(c.MemberList, talosapi.Member{Hostname: "old-cp-1"})
		},
		"an unexpected member that is dead": func(_ *waitRequest, c *clustertest.Fake) {
			c.MemberList = append(c.MemberList, talosapi.Member{Hostname: "cp-4", PeerURLs: []string{"https://127.0.9.9:2380"}})
			c.Down["etcd 127.0.9.9"] = errors.New("no route to host")
		},
		"an old member of the same name": func(_ *waitRequest, c *clustertest.Fake) {
			c.MemberList = append(c.MemberList, talosapi.Member{Hostname: "cp-2"})
		},
		"a member that was added, and has not started": func(_ *waitRequest, c *clustertest.Fake) {
			c.MemberList[1] = talosapi.Member{PeerURLs: []string{"https://127.0.9.2:2380"}}
		},
		"a member that was added elsewhere": func(_ *waitRequest, c *clustertest.Fake) {
			c.MemberList[1] = talosapi.Member{PeerURLs: []string{"https://127.0.9.9:2380"}}
		},
		"etcd that does not answer": func(_ *waitRequest, c *clustertest.Fake) {
			c.Down["etcd 127.0.9.2"] = errors.New("etcdserver: no leader")
		},
		"an unhealthy service": func(_ *waitRequest, c *clustertest.Fake) { c.NodeServices["127.0.9.4"][1].Healthy = false },
		"a service of control planes only": func(_ *waitRequest, c *clustertest.Fake) {
			c.NodeServices["127.0.9.1"] = c.NodeServices["127.0.9.1"][:3]
		},
		"one API that is not ready": func(_ *waitRequest, c *clustertest.Fake) {
			c.APIDown["127.0.9.1"] = errors.New("500 Internal Server Error: etcd failed")
		},
		"no API that is ready": func(r *waitRequest, c *clustertest.Fake) {
			for _, n := range r.ControlPlanes {
				c.APIDown[n.Address.String()] = errors.New("connection refused")
			}
		},
		"an API that does not list nodes": func(_ *waitRequest, c *clustertest.Fake) {
			c.NodesErr = errors.New("403 Forbidden")
		},
		"a node that is not registered": func(_ *waitRequest, c *clustertest.Fake) { c.NodeList = c.NodeList[:4] },
		"a node with another kubelet": func(r *waitRequest, c *clustertest.Fake) {
			r.KubernetesVersion, c.NodeList[4].Kubelet = "v1.36.0", ""
		},
		"an unreachable node": func(_ *waitRequest, c *clustertest.Fake) {
			c.Down["127.0.9.2"] = errors.New("connection refused")
		},
		"several at once": func(_ *waitRequest, c *clustertest.Fake) {
			c.MemberList = c.MemberList[:2]
			c.Down["127.0.9.4"] = errors.New("no route to host")
			c.NodeList = c.NodeList[:3]
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			g, _, _ := newTestGate(change)
			g.Timeout = 30 * time.Millisecond
			golden.Equal(t, name, g.wait(t.Context()))
		})
	}
}

func TestGateReportsProgress(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		g, cluster, progress := newTestGate(nil)
		cluster.MemberList[2].Learner = true
		// Between two rounds, which come every two seconds.
		at := func(seconds int, change func()) { cluster.After(time.Duration(seconds)*time.Second, change) }
		says := func(digits int) {
			cluster.APIDown["127.0.9.2"] = errors.New("read from port " + strings.Repeat("1", digits))
		}
		says(1)

		for digits := 2; digits < 10; digits++ {
			at(2*digits-3, func() { says(digits) })
		}

		at(17, func() { cluster.APIDown["127.0.9.2"] = nil })
		at(37, func() {
			cluster.MemberList = []talosapi.Member{{Hostname: "cp-1"}, {Hostname: "cp-2"}, {Hostname: "cp-3"}}
		})

		g.Interval = 2 * time.Second
		require.NoError(t, g.wait(t.Context()))

		const learner = "cp-1, cp-2, cp-3: etcd: member cp-3 is still a learner"

		assert.Equal(t, "waits: "+learner+"; cp-2: Kubernetes API: is not ready on 127.0.9.2: read from port 1\n"+
			"waits for 16s: "+learner+"; cp-2: Kubernetes API: is not ready on 127.0.9.2: read from port 111111111\n"+
			"waits for 32s: "+learner+"\n", progress.String())
	})
}

func TestGateInterrupted(t *testing.T) {
	t.Parallel()

	g, cluster, _ := newTestGate(nil)
	cluster.NodeList = nil
	ctx, cancel := context.WithCancel(t.Context())
	cluster.OnRound = func(_ *clustertest.Fake, asked int) {
		if asked == 2 {
			cancel()
		}
	}
	err := g.wait(ctx)
	require.ErrorContains(t, err, "interrupted before the cluster was healthy; 5 of 16 checks are open")
	require.ErrorContains(t, err, "run the same again to keep waiting")
}

// hangingTalos never answers for one node, as if a firewall dropped the packets.
type hangingTalos struct {
	*clustertest.Fake
	address netip.Addr
}

func (h hangingTalos) Services(ctx context.Context, address netip.Addr) ([]talosapi.Service, error) {
	if address == h.address {
		<-ctx.Done()

		return nil, ctx.Err()
	}

	return h.Fake.Services(ctx, address)
}

func TestGateTimesOutWhenANodeHangs(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		g, cluster, _ := newTestGate(nil)
		g.Talos = hangingTalos{cluster, netip.MustParseAddr("127.0.9.5")}
		g.Timeout = 30 * time.Millisecond

		err := g.wait(t.Context())
		require.ErrorContains(t, err, "1 of 16 checks are open:\n  w-2: services: Talos does not answer on 127.0.9.5")
	})
}

func TestLimitWithinARoundReportsTheRoundBefore(t *testing.T) {
	t.Parallel()

	g, cluster, _ := newTestGate(nil)
	cluster.NodeList = cluster.NodeList[:4]
	ctx, cancel := context.WithCancel(t.Context())
	cluster.OnRound = func(c *clustertest.Fake, asked int) {
		if asked == 2 {
			cancel()

			c.Down["127.0.9.1"] = context.Canceled
		}
	}
	err := g.wait(ctx)
	require.ErrorContains(t, err, "w-2: node: is not registered")
	assert.NotContains(t, err.Error(), "does not answer")
}
