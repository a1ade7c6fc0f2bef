package verbs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
	"talos-proxmox/talosops/verbtest"
)

// sessionWithOutcome returns a session whose caller reports this outcome.
func sessionWithOutcome(c *cluster.Cluster, outcome string) (*verb.Session, *bytes.Buffer) {
	stdout := &bytes.Buffer{}

	return &verb.Session{Cluster: c, In: json.NewDecoder(strings.NewReader(outcome)), Out: stdout}, stdout
}

func newChange(c *cluster.Cluster, name string, worker, restart bool) *change {
	address := netip.MustParseAddr(map[string]string{"cp-1": "127.0.9.1", "w-1": "127.0.9.4"}[name])
	req := &changeRequest{Change: request.Change{
		Node: request.Node{Name: name, Address: address}, Worker: worker, Restart: restart,
	}}

	return &change{Session: &verb.Session{Cluster: c}, req: req}
}

func TestChange(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	web := kube.Pod{Namespace: "default", Name: "web", UID: "1"}

	for name, test := range map[string]struct {
		node    string
		restart bool
		silent  bool
		left    []string
		outcome string
		change  func(*cluster.Cluster, *clustertest.Fake)
	}{
		"a worker that restarts is drained and put back": {
			node: "w-1", restart: true, outcome: `{"changed":true}`,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Pods["w-1"] = []kube.Pod{web} },
		},
		"a configuration that has no effect before a restart gets one": {
			node: "w-1", restart: true, left: []string{"machine.files"}, outcome: `{"changed":true}`,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Pods["w-1"] = []kube.Pod{web} },
		},
		"a configuration that the provider could not bring restarts nothing": {
			node: "w-1", restart: true, left: []string{"machine.files"}, outcome: `{"changed":false}`,
		},
		"a restart that a run was interrupted before": {
			node: "w-1", restart: true, left: []string{"machine.files"},
		},
		"a worker that does not restart is left as it is": {
			node: "w-1", outcome: `{"changed":true}`,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Pods["w-1"] = []kube.Pod{web} },
		},
		"a change that the provider refused leaves no cordon": {
			node: "w-1", restart: true, outcome: `{"changed":false}`,
		},
		"a change that ended nobody knows how leaves the cordon": {node: "w-1", restart: true},
		"a machine that does not come back stays cordoned": {
			node: "w-1", restart: true, outcome: `{"changed":true}`,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) {
				f.After(time.Nanosecond, func() {
					f.Down["127.0.9.4"] = errors.New("no route to host")
				})

				f.Pods["w-1"] = []kube.Pod{web}
			},
		},
		"a dead machine is changed, and not waited for": {
			node: "w-1", restart: true, silent: true, outcome: `{"changed":true}`,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) {
				f.Pods["w-1"] = []kube.Pod{web}
				makeUnreachable(f, "127.0.9.4")
			},
		},
		"a dead control plane is not changed while another one is down": {
			node: "cp-1", restart: true, silent: true,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { makeUnreachable(f, "127.0.9.1", "127.0.9.3") },
		},
		"another control plane that is down keeps a machine from being changed": {
			node: "w-1", restart: true,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Down["127.0.9.3"] = errors.New("no route to host") },
		},
		"a control plane that is not well itself may be changed": {
			node: "cp-1", outcome: `{"changed":false}`,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Statuses["127.0.9.1"] = talosapi.EtcdStatus{} },
		},
		"a control plane that this run makes is not waited for": {
			node: "w-1", outcome: `{"changed":true}`,
			change: func(c *cluster.Cluster, f *clustertest.Fake) {
				c.ControlPlanes = append(c.ControlPlanes, request.Node{Name: "cp-4", Address: netip.MustParseAddr("127.0.9.9")})
				f.Down["127.0.9.9"] = errors.New("connection refused")
			},
		},
		"where no other node takes pods nothing is drained": {
			node: "w-1", restart: true, outcome: `{"changed":true}`,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) {
				f.Pods["w-1"] = []kube.Pod{web}
				for i := range f.NodeList {
					f.NodeList[i].Unschedulable = f.NodeList[i].Name != "w-1"
				}
			},
		},
		"what an interrupted run left cordoned is put back": {
			node: "w-1", outcome: `{"changed":true}`,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) {
				f.NodeList[1].Unschedulable = true
				f.NodeList[1].Annotations = map[string]string{cluster.CordonAnnotation: "true"}
			},
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewRunning()
			if test.change != nil {
				test.change(c, f)
			}

			of := newChange(c, test.node, test.node == "w-1", test.restart)

			var stdout *bytes.Buffer

			of.Session, stdout = sessionWithOutcome(c, test.outcome)
			of.req.unreachable, of.pending, of.perform = test.silent, test.left, of.awaitOutcome

			err := of.coordinate(t.Context())
			golden.Equal(t, name, stdout.String(), f.Actions, err)
		})
	}
}

// makeUnreachable makes the Talos API of machines unreachable.
func makeUnreachable(f *clustertest.Fake, addresses ...string) {
	for _, address := range addresses {
		f.Down[address] = errors.New("i/o timeout")
	}
}

// TestUnreachableMachines: an unreachable machine that still runs is not changed, and a dead one is.
func TestUnreachableMachines(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, test := range map[string]struct {
		change func(*clustertest.Fake)
		within time.Duration
	}{
		"Kubernetes hears from its node": {change: func(*clustertest.Fake) {}, within: time.Minute},
		"a node that is not Ready is heard of": {
			change: func(f *clustertest.Fake) { f.NodeList[3].Ready = false }, within: time.Minute,
		},
		"it has died just now": {
			change: func(f *clustertest.Fake) {
				f.After(50*time.Second, func() { f.NodeList[3].Ready, f.NodeList[3].Unreachable = false, true })
			},
			within: 50 * time.Second,
		},
		"it was booting": {
			change: func(f *clustertest.Fake) { f.After(30*time.Second, func() { clear(f.Down) }) },
			within: 30 * time.Second,
		},
		"it has no node": {change: func(f *clustertest.Fake) { f.NodeList = f.NodeList[:3] }},
		"no API lists the nodes": {
			change: func(f *clustertest.Fake) {
				for _, address := range []string{"127.0.9.1", "127.0.9.2", "127.0.9.3"} {
					f.APIDown[address] = errors.New("connection refused")
				}
			},
			within: time.Minute,
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewRunning()
			makeUnreachable(f, "127.0.9.4")
			test.change(f)

			began := time.Now()
			answers, err := newChange(c, "w-1", true, true).awaitNodeLost(t.Context())
			assert.WithinDuration(t, began.Add(test.within), time.Now(), 2*time.Second)
			golden.Equal(t, name, fmt.Sprintf("answers: %t", answers), err)
		})
	}
}

func TestReasonToSkip(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, prepare := range map[string]func(*change, *clustertest.Fake){
		"a control plane that would get another address": func(c *change, f *clustertest.Fake) {
			c.req.Former, c.req.Node.Address = c.req.Node.Address, netip.MustParseAddr("127.0.9.99")
			f.Down["127.0.9.99"] = errors.New("connection refused")
		},
		"a control plane that gets another address, forced": func(c *change, _ *clustertest.Fake) {
			c.req.Former, c.req.Node.Address, c.req.Force = c.req.Node.Address, netip.MustParseAddr("127.0.9.99"), true
		},
		"a worker that gets another address": func(c *change, f *clustertest.Fake) {
			c.req.Node, c.req.Former, c.req.Worker = request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.99")}, netip.MustParseAddr("127.0.9.4"), true
			f.Down["127.0.9.99"] = errors.New("connection refused")
		},
		"a machine of a cluster that runs": func(*change, *clustertest.Fake) {},
		"a machine that does not answer, of a cluster that lives": func(_ *change, f *clustertest.Fake) {
			makeUnreachable(f, "127.0.9.1")
		},
		"a machine that Proxmox calls off": func(c *change, f *clustertest.Fake) {
			c.req.Off, c.req.Bootstrapped = true, true

			makeUnreachable(f, "127.0.9.1", "127.0.9.2", "127.0.9.3")
		},
		"a machine that does not answer, forced": func(c *change, f *clustertest.Fake) {
			c.req.Force = true

			makeUnreachable(f, "127.0.9.1")
		},
		"no machine of a cluster that was begun answers": func(c *change, f *clustertest.Fake) {
			c.req.Bootstrapped = true

			makeUnreachable(f, "127.0.9.1", "127.0.9.2", "127.0.9.3")
		},
		"the only control plane of a cluster that was begun does not answer": func(c *change, f *clustertest.Fake) {
			c.req.Bootstrapped, c.ControlPlanes = true, c.ControlPlanes[:1]

			makeUnreachable(f, "127.0.9.1")
		},
		"what answers of a cluster that was begun has no data of etcd": func(c *change, f *clustertest.Fake) {
			c.req.Bootstrapped, f.NoEtcdData = true, true
			makeUnreachable(f, "127.0.9.1")
		},
		"a machine of a cluster that has lost its data of etcd": func(c *change, f *clustertest.Fake) {
			c.req.Bootstrapped, f.NoEtcdData = true, true
		},
		"a machine of a cluster that has lost its data of etcd, forced": func(c *change, f *clustertest.Fake) {
			c.req.Bootstrapped, c.req.Force, f.NoEtcdData = true, true, true
		},
		"no machine of a cluster that was never begun answers": func(_ *change, f *clustertest.Fake) {
			makeUnreachable(f, "127.0.9.1", "127.0.9.2", "127.0.9.3")
		},
		"a cluster without etcd": func(_ *change, f *clustertest.Fake) { f.NoEtcdData = true },
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewRunning()
			ch := newChange(c, "cp-1", false, false)
			prepare(ch, f)

			why, err := ch.reasonToSkip(t.Context())
			flags := fmt.Sprintf("silent: %t, restart: %t", ch.req.unreachable, ch.req.Restart)
			golden.Equal(t, name, why, flags, err)
		})
	}
}

func TestTheGateUncordonsLeftovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, _ := clustertest.NewRunning()
		g := &gate{req: testRequest(), Cluster: c}

		require.NoError(t, g.uncordonLeftovers(t.Context()))
		assert.Empty(t, f.Actions)

		for i, annotations := range []map[string]string{nil, {cluster.CordonAnnotation: "true"}} {
			f.NodeList[i].Unschedulable, f.NodeList[i].Annotations = true, annotations
		}

		g.listed = f.NodeList
		require.NoError(t, g.uncordonLeftovers(t.Context()))
		assert.Equal(t, []string{"cp-2 schedulable"}, f.Actions, "the other's cordon is someone else's")
	})
}

// TestHasPendingRestart: a configuration is in effect after the next boot.
func TestHasPendingRestart(t *testing.T) {
	t.Parallel()

	for boot, want := range map[string]bool{"": false, "first": true, "earlier": false} {
		c, f, _ := clustertest.NewRunning()
		f.NodeList[3].Annotations = map[string]string{cluster.RestartAnnotation: boot}
		ch := newChange(c, "w-1", true, false)
		req := ch.req

		assert.Equal(t, want, ch.hasPendingRestart(t.Context()), boot)
		assert.Equal(t, want, req.Restart)
		assert.Equal(t, want, len(ch.pending) > 0)
		assert.Equal(t, want, f.NodeList[3].Annotations[cluster.RestartAnnotation] != "", "a note of an earlier boot goes")
	}
}

// TestARestartWhoseAnswerIsLost: a machine that has restarted is not restarted again.
func TestARestartWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, progress := clustertest.NewRunning()
		f.RebootErr = errors.New("connection reset")
		c.Interval = 15 * time.Second

		ch := newChange(c, "w-1", true, true)
		ch.pending = []string{"machine.files"}

		require.NoError(t, ch.restart(t.Context()))
		assert.Equal(t, []string{"127.0.9.4 restarts"}, f.Actions)
		assert.Contains(t, progress.String(), "w-1: boot: restarts, because these take effect only then: machine.files")
	})
}
