package verbs

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
	"talos-proxmox/talosops/verbtest"
)

// changed is a session whose caller's change has this outcome.
func changed(c *cluster.Cluster, outcome string) (*verb.Session, *bytes.Buffer) {
	said := &bytes.Buffer{}

	return &verb.Session{Cluster: c, In: json.NewDecoder(strings.NewReader(outcome)), Out: said}, said
}

func changeOf(c *cluster.Cluster, name string, worker, restart bool) *change {
	address := map[string]string{"cp-1": "127.0.9.1", "w-1": "127.0.9.4"}[name]
	req := &changeRequest{Change: request.Change{
		Node: request.Node{Name: name, Address: address}, Worker: worker, Restart: restart,
	}}

	return &change{Session: &verb.Session{Cluster: c}, req: req}
}

func TestChange(t *testing.T) {
	t.Parallel()

	const ready = `{"ready":true}` + "\n"

	web := kube.Pod{Namespace: "default", Name: "web", UID: "1"}
	drained, back := []string{"w-1 cordoned"}, []string{"w-1 cordoned", "w-1 schedulable"}

	for name, test := range map[string]struct {
		node    string
		restart bool
		silent  bool
		left    []string
		outcome string
		change  func(*cluster.Cluster, *clustertest.Fake)
		said    string
		wants   []string // of the error
		patches []string
	}{
		"a worker that restarts is drained and put back": {
			node: "w-1", restart: true, outcome: `{"changed":true}`, said: ready, patches: back,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Pods["w-1"] = []kube.Pod{web} },
		},
		"a configuration that has no effect before a restart gets one": {
			node: "w-1", restart: true, left: []string{"machine.files"}, outcome: `{"changed":true}`, said: ready,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Pods["w-1"] = []kube.Pod{web} },
			patches: []string{
				"w-1 cordoned", "w-1 waits for the end of boot first", "127.0.9.4 restarts", "w-1 waits no more", "w-1 schedulable",
			},
		},
		"a configuration that the provider could not bring restarts nothing": {
			node: "w-1", restart: true, left: []string{"machine.files"}, outcome: `{"changed":false}`, said: ready,
			patches: []string{
				"w-1 cordoned", "w-1 waits for the end of boot first", "w-1 waits no more", "w-1 schedulable",
			},
		},
		"a restart that a run was interrupted before": {
			node: "w-1", restart: true, left: []string{"machine.files"}, said: ready, wants: []string{"the change was not finished"},
			patches: []string{"w-1 cordoned", "w-1 waits for the end of boot first"},
		},
		"a worker that does not restart is left as it is": {
			node: "w-1", outcome: `{"changed":true}`, said: ready,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Pods["w-1"] = []kube.Pod{web} },
		},
		"a change that the provider refused leaves no cordon": {
			node: "w-1", restart: true, outcome: `{"changed":false}`, said: ready, patches: back,
		},
		"a change that ended nobody knows how leaves the cordon": {
			node: "w-1", restart: true, said: ready, patches: drained, wants: []string{"the change was not finished"},
		},
		"a machine that does not come back stays cordoned": {
			node: "w-1", restart: true, outcome: `{"changed":true}`, said: ready, patches: drained,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) {
				f.After(time.Nanosecond, func() {
					f.Down["127.0.9.4"] = errors.New("no route to host")
				})

				f.Pods["w-1"] = []kube.Pod{web}
			},
			wants: []string{"w-1 is not back after 1m0s", "w-1: services: Talos does not answer on 127.0.9.4: no route to host"},
		},
		"a dead machine is changed, and not waited for": {
			node: "w-1", restart: true, silent: true, outcome: `{"changed":true}`, said: ready,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) {
				f.Pods["w-1"] = []kube.Pod{web}
				silence(f, "127.0.9.4")
			},
		},
		"a dead control plane is not changed while another one is down": {
			node: "cp-1", restart: true, silent: true,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { silence(f, "127.0.9.1", "127.0.9.3") },
			wants:  []string{"cp-1 is not changed: the cluster is not steady", "cp-3: services: Talos does not answer"},
		},
		"another control plane that is down keeps a machine from being changed": {
			node: "w-1", restart: true,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Down["127.0.9.3"] = errors.New("no route to host") },
			wants: []string{
				"w-1 is not changed: the cluster is not steady", "cp-3: services: Talos does not answer on 127.0.9.3",
				"TALOS_PROXMOX_REGARDLESS=1 pulumi up",
			},
		},
		"a control plane that is not well itself may be changed": {
			node: "cp-1", outcome: `{"changed":false}`, said: ready,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) { f.Statuses["127.0.9.1"] = talosapi.EtcdStatus{} },
			wants:  []string{"cp-1 is not back after 1m0s", "cp-1: etcd: its member sees no leader"},
		},
		"a control plane that this run makes is not waited for": {
			node: "w-1", outcome: `{"changed":true}`, said: ready,
			change: func(c *cluster.Cluster, f *clustertest.Fake) {
				c.ControlPlanes = append(c.ControlPlanes, request.Node{Name: "cp-4", Address: "127.0.9.9"})
				f.Down["127.0.9.9"] = errors.New("connection refused")
			},
		},
		"where no other node takes pods nothing is drained": {
			node: "w-1", restart: true, outcome: `{"changed":true}`, said: ready,
			change: func(_ *cluster.Cluster, f *clustertest.Fake) {
				f.Pods["w-1"] = []kube.Pod{web}
				for i := range f.NodeList {
					f.NodeList[i].Unschedulable = f.NodeList[i].Name != "w-1"
				}
			},
		},
		"what an interrupted run left cordoned is put back": {
			node: "w-1", outcome: `{"changed":true}`, said: ready, patches: []string{"cp-2 schedulable"},
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

			of := changeOf(c, test.node, test.node == "w-1", test.restart)

			var said *bytes.Buffer

			of.Session, said = changed(c, test.outcome)
			of.req.silent, of.req.pending = test.silent, test.left

			err := of.accompany(t.Context())
			verbtest.RequireError(t, err, test.wants...)

			assert.Equal(t, test.said, said.String())
			assert.Equal(t, test.patches, f.Patches)
		})
	}
}

// silence has nobody get through to the Talos API of machines.
func silence(f *clustertest.Fake, addresses ...string) {
	for _, address := range addresses {
		f.Down[address] = errors.New("i/o timeout")
	}
}

// TestSilentMachines: one that runs and cannot be reached is not changed, and a dead one is.
func TestSilentMachines(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change  func(*clustertest.Fake)
		answers bool
		within  time.Duration
		want    string // of the error
	}{
		"Kubernetes hears from its node": {
			change: func(*clustertest.Fake) {}, within: time.Minute,
			want: "w-1 is not changed: Talos does not answer on 127.0.9.4, and nothing says that it is dead after 1m0s; " +
				"1 of 1 checks are open:\n  w-1: node: Kubernetes hears from its kubelet\nto change it all the same: " +
				"TALOS_PROXMOX_REGARDLESS=1 pulumi up; else repair the network between here and it",
		},
		"a node that is not Ready is heard of": {
			change: func(f *clustertest.Fake) { f.NodeList[3].Ready = false },
			within: time.Minute, want: "w-1 is not changed",
		},
		"it has died just now": {
			change: func(f *clustertest.Fake) {
				f.After(50*time.Second, func() { f.NodeList[3].Ready, f.NodeList[3].Lost = false, true })
			}, within: 50 * time.Second,
		},
		"it was booting": {
			change: func(f *clustertest.Fake) { f.After(30*time.Second, func() { clear(f.Down) }) },
			within: 30 * time.Second, answers: true,
		},
		"it has no node": {change: func(f *clustertest.Fake) { f.NodeList = f.NodeList[:3] }},
		"no API lists the nodes": {
			change: func(f *clustertest.Fake) {
				for _, address := range []string{"127.0.9.1", "127.0.9.2", "127.0.9.3"} {
					f.APIDown[address] = errors.New("connection refused")
				}
			}, within: time.Minute, want: "w-1: node: no Kubernetes API lists the nodes: connection refused",
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewRunning()
			silence(f, "127.0.9.4")
			test.change(f)

			began := time.Now()
			answers, err := changeOf(c, "w-1", true, true).awaitLoss(t.Context())
			assert.WithinDuration(t, began.Add(test.within), time.Now(), 2*time.Second)

			if test.want != "" {
				require.ErrorContains(t, err, test.want)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, test.answers, answers)
		})
	}
}

func TestUnnoticed(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change  func(*changeRequest, *clustertest.Fake)
		want    string
		restart bool
		silent  bool
		left    []string
		only    bool // it is the only control plane
		refused string
	}{
		"a control plane that would get another address": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Former, r.Node.Address = r.Node.Address, "127.0.9.99"
				f.Down["127.0.9.99"] = errors.New("connection refused")
			},
			refused: "cp-1 is not changed: it would get the address 127.0.9.99 in place of 127.0.9.1",
		},
		"a control plane that gets another address regardless": {
			change: func(r *changeRequest, _ *clustertest.Fake) {
				r.Former, r.Node.Address, r.Regardless = r.Node.Address, "127.0.9.99", true
			},
			want: "gets the address 127.0.9.99 in place of 127.0.9.1",
		},
		"a worker that gets another address": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Node, r.Former, r.Worker = request.Node{Name: "w-1", Address: "127.0.9.99"}, "127.0.9.4", true
				f.Down["127.0.9.99"] = errors.New("connection refused")
			},
		},
		"a machine of a cluster that runs": {change: func(*changeRequest, *clustertest.Fake) {}},
		"a machine that does not answer, of a cluster that lives": {
			change: func(_ *changeRequest, f *clustertest.Fake) { silence(f, "127.0.9.1") }, silent: true,
		},
		"a machine that Proxmox calls off": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Off, r.Begun = true, true

				silence(f, "127.0.9.1", "127.0.9.2", "127.0.9.3")
			},
			want: "does not answer on 127.0.9.1, so that it is changed as it is",
		},
		"a machine that does not answer, regardless": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Regardless = true

				silence(f, "127.0.9.1")
			},
			want: "does not answer on 127.0.9.1, so that it is changed as it is",
		},
		"no machine of a cluster that was begun answers": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Begun = true

				silence(f, "127.0.9.1", "127.0.9.2", "127.0.9.3")
			},
			refused: "cp-1 is not changed: it does not answer on 127.0.9.1, and no control plane of its cluster answers",
		},
		"the only control plane of a cluster that was begun does not answer": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Begun = true

				silence(f, "127.0.9.1")
			},
			only: true, refused: "change it all the same: TALOS_PROXMOX_REGARDLESS=1 pulumi up",
		},
		"what answers of a cluster that was begun has no data of etcd": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Begun, f.Empty = true, true
				silence(f, "127.0.9.1")
			},
			refused: "nobody knows what runs",
		},
		"no machine of a cluster that was never begun answers": {
			change: func(_ *changeRequest, f *clustertest.Fake) { silence(f, "127.0.9.1", "127.0.9.2", "127.0.9.3") },
			want:   "does not answer on 127.0.9.1",
		},
		"a cluster without etcd": {
			change: func(_ *changeRequest, f *clustertest.Fake) { f.Empty = true },
			want:   "is of a cluster that was not bootstrapped yet",
		},
		"a configuration that changes nothing": {
			change: func(r *changeRequest, _ *clustertest.Fake) { r.Configuration = configuration },
			want:   "has this configuration already",
		},
		"a configuration that Talos takes over": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Configuration, f.Effects["127.0.9.1"] = configuration, talosapi.TakesOver
			},
		},
		"a configuration that has no effect before a restart": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Configuration, f.Effects["127.0.9.1"], f.Left = configuration, talosapi.TakesOver, []string{"cluster.etcd.extraArgs"}
			},
			restart: true, left: []string{"cluster.etcd.extraArgs"},
		},
		"a configuration that restarts the machine": {
			change: func(r *changeRequest, f *clustertest.Fake) {
				r.Configuration, f.Effects["127.0.9.1"] = configuration, talosapi.Restarts
			},
			restart: true,
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewRunning()
			f.Effects = map[string]talosapi.Effect{}
			ch := changeOf(c, "cp-1", false, false)
			test.change(ch.req, f)

			if test.only {
				c.ControlPlanes = c.ControlPlanes[:1]
			}

			why, err := ch.unnoticed(t.Context())
			if test.refused != "" {
				require.ErrorContains(t, err, test.refused)

				return
			}

			require.NoError(t, err)
			assert.Contains(t, why, test.want)
			assert.Equal(t, test.want == "", why == "")
			assert.Equal(t, test.silent, ch.req.silent)
			assert.Equal(t, test.restart, ch.req.Restart)
			assert.Equal(t, test.left, ch.req.pending)
		})
	}
}

const configuration = "version: v1alpha1\nmachine:\n  type: controlplane\ncluster: {}\n"

func TestTheGateLiftsWhatAnInterruptedRunLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, _ := clustertest.NewRunning()
		g := &gate{req: testRequest(), Cluster: c}

		require.NoError(t, g.liftLeftovers(t.Context()))
		assert.Empty(t, f.Patches)

		for i, annotations := range []map[string]string{nil, {cluster.CordonAnnotation: "true"}} {
			f.NodeList[i].Unschedulable, f.NodeList[i].Annotations = true, annotations
		}

		g.listed = f.NodeList
		require.NoError(t, g.liftLeftovers(t.Context()))
		assert.Equal(t, []string{"cp-2 schedulable"}, f.Patches, "the other's cordon is someone else's")
	})
}

// TestAwaitsRestart: a configuration is in effect once another boot has begun.
func TestAwaitsRestart(t *testing.T) {
	t.Parallel()

	for boot, want := range map[string]bool{"": false, "first": true, "earlier": false} {
		c, f, _ := clustertest.NewRunning()
		f.NodeList[3].Annotations = map[string]string{cluster.RestartAnnotation: boot}
		ch := changeOf(c, "w-1", true, false)
		req := ch.req

		assert.Equal(t, want, ch.awaitsRestart(t.Context()), boot)
		assert.Equal(t, want, req.Restart)
		assert.Equal(t, want, len(req.pending) > 0)
		assert.Equal(t, want, f.NodeList[3].Annotations[cluster.RestartAnnotation] != "", "a note of an earlier boot goes")
	}
}

// TestARestartWhoseAnswerIsLost: no machine is restarted once more that has restarted.
func TestARestartWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, said := clustertest.NewRunning()
		f.Answer = errors.New("connection reset")
		c.Interval = 15 * time.Second

		ch := changeOf(c, "w-1", true, true)
		ch.req.pending = []string{"machine.files"}

		require.NoError(t, ch.restart(t.Context()))
		assert.Equal(t, []string{"127.0.9.4 restarts"}, f.Patches)
		assert.Contains(t, said.String(), "w-1: boot: restarts, for what has no effect before: machine.files")
	})
}
