package main

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
)

// changed is a caller whose change has this outcome.
func changed(outcome string) (caller, *bytes.Buffer) {
	said := &bytes.Buffer{}

	return caller{in: json.NewDecoder(strings.NewReader(outcome)), out: said}, said
}

func changeOf(c *cluster, name string, worker, restart bool) *change {
	address := map[string]string{"cp-1": "127.0.9.1", "w-1": "127.0.9.4"}[name]
	req := &changeRequest{Change: request.Change{
		Node: node{Name: name, Address: address}, Worker: worker, Restart: restart,
	}}

	return &change{cluster: c, req: req}
}

func TestChange(t *testing.T) {
	t.Parallel()

	const ready = `{"ready":true}` + "\n"

	web := kubePod{Namespace: "default", Name: "web", UID: "1"}
	drained, back := []string{"w-1 cordoned"}, []string{"w-1 cordoned", "w-1 schedulable"}

	for name, test := range map[string]struct {
		node    string
		restart bool
		outcome string
		change  func(*cluster, *fakeRunning)
		said    string
		wants   []string // of the error
		patches []string
	}{
		"a worker that restarts is drained and put back": {
			node: "w-1", restart: true, outcome: `{"changed":true}`, said: ready, patches: back,
			change: func(_ *cluster, f *fakeRunning) { f.pods["w-1"] = []kubePod{web} },
		},
		"a worker that does not restart is left as it is": {
			node: "w-1", outcome: `{"changed":true}`, said: ready,
			change: func(_ *cluster, f *fakeRunning) { f.pods["w-1"] = []kubePod{web} },
		},
		"a change that the provider refused leaves no cordon": {
			node: "w-1", restart: true, outcome: `{"changed":false}`, said: ready, patches: back,
		},
		"a change that ended nobody knows how leaves the cordon": {
			node: "w-1", restart: true, said: ready, patches: drained, wants: []string{"the change was not finished"},
		},
		"a machine that does not come back stays cordoned": {
			node: "w-1", restart: true, outcome: `{"changed":true}`, said: ready, patches: drained,
			change: func(_ *cluster, f *fakeRunning) {
				time.AfterFunc(time.Nanosecond, func() {
					f.mu.Lock()
					defer f.mu.Unlock()

					f.down["127.0.9.4"] = errors.New("no route to host")
				})

				f.pods["w-1"] = []kubePod{web}
			},
			wants: []string{"w-1 is not back after 1m0s", "w-1: services: Talos does not answer on 127.0.9.4: no route to host"},
		},
		"another control plane that is down keeps a machine from being changed": {
			node: "w-1", restart: true,
			change: func(_ *cluster, f *fakeRunning) { f.down["127.0.9.3"] = errors.New("no route to host") },
			wants: []string{
				"w-1 is not changed: the cluster is not steady", "cp-3: services: Talos does not answer on 127.0.9.3",
				"TALOS_PROXMOX_REGARDLESS=1 pulumi up",
			},
		},
		"a control plane that is not well itself may be changed": {
			node: "cp-1", outcome: `{"changed":false}`, said: ready,
			change: func(_ *cluster, f *fakeRunning) { f.statuses["127.0.9.1"] = etcdStatus{} },
			wants:  []string{"cp-1 is not back after 1m0s", "cp-1: etcd: its member sees no leader"},
		},
		"a control plane that this run makes is not waited for": {
			node: "w-1", outcome: `{"changed":true}`, said: ready,
			change: func(c *cluster, f *fakeRunning) {
				c.controlPlanes = append(c.controlPlanes, node{Name: "cp-4", Address: "127.0.9.9"})
				f.down["127.0.9.9"] = errors.New("connection refused")
			},
		},
		"where no other node takes pods nothing is drained": {
			node: "w-1", restart: true, outcome: `{"changed":true}`, said: ready,
			change: func(_ *cluster, f *fakeRunning) {
				f.pods["w-1"] = []kubePod{web}
				for i := range f.nodesL {
					f.nodesL[i].Unschedulable = f.nodesL[i].Name != "w-1"
				}
			},
		},
		"what an interrupted run left cordoned is put back": {
			node: "w-1", outcome: `{"changed":true}`, said: ready, patches: []string{"cp-2 schedulable"},
			change: func(_ *cluster, f *fakeRunning) {
				f.nodesL[1].Unschedulable = true
				f.nodesL[1].Annotations = map[string]string{cordonAnnotation: "true"}
			},
		},
		"a budget keeps a machine from being changed": {
			node: "w-1", restart: true, patches: back,
			change: func(_ *cluster, f *fakeRunning) {
				f.pods["w-1"], f.budget["web"] = []kubePod{web}, "The disruption budget web needs 3 healthy pods"
			},
			wants: []string{"w-1 could not be drained", "The disruption budget web needs 3 healthy pods"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, f, _ := runningCluster()
				if test.change != nil {
					test.change(c, f)
				}

				caller, said := changed(test.outcome)

				err := changeOf(c, test.node, test.node == "w-1", test.restart).run(t.Context(), caller)
				if len(test.wants) == 0 {
					require.NoError(t, err)
				}

				for _, want := range test.wants {
					require.ErrorContains(t, err, want)
				}

				assert.Equal(t, test.said, said.String())
				assert.Equal(t, test.patches, f.patches)
			})
		})
	}
}

func TestUnnoticed(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change  func(*changeRequest, *fakeRunning)
		want    string
		restart bool
		refused string
	}{
		"a control plane that would get another address": {
			change: func(r *changeRequest, f *fakeRunning) {
				r.Former, r.Node.Address = r.Node.Address, "127.0.9.99"
				f.down["127.0.9.99"] = errors.New("connection refused")
			},
			refused: "cp-1 is not changed: it would get the address 127.0.9.99 in place of 127.0.9.1",
		},
		"a control plane that gets another address regardless": {
			change: func(r *changeRequest, _ *fakeRunning) {
				r.Former, r.Node.Address, r.Regardless = r.Node.Address, "127.0.9.99", true
			},
			want: "gets the address 127.0.9.99 in place of 127.0.9.1",
		},
		"a worker that gets another address": {
			change: func(r *changeRequest, f *fakeRunning) {
				r.Node, r.Former, r.Worker = node{Name: "w-1", Address: "127.0.9.99"}, "127.0.9.4", true
				f.down["127.0.9.99"] = errors.New("connection refused")
			},
		},
		"a machine of a cluster that runs": {change: func(*changeRequest, *fakeRunning) {}},
		"a machine that is off": {
			change: func(_ *changeRequest, f *fakeRunning) { f.down["127.0.9.1"] = errors.New("connection refused") },
			want:   "does not answer on 127.0.9.1",
		},
		"a cluster without etcd": {
			change: func(_ *changeRequest, f *fakeRunning) { f.empty = true },
			want:   "is of a cluster that was not bootstrapped yet",
		},
		"a configuration that changes nothing": {
			change: func(r *changeRequest, _ *fakeRunning) { r.Configuration = configuration },
			want:   "has this configuration already",
		},
		"a configuration that Talos takes over": {
			change: func(r *changeRequest, f *fakeRunning) {
				r.Configuration, f.effects["127.0.9.1"] = configuration, takesOver
			},
		},
		"a configuration that restarts the machine": {
			change: func(r *changeRequest, f *fakeRunning) {
				r.Configuration, f.effects["127.0.9.1"] = configuration, restarts
			},
			restart: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, f, _ := runningCluster()
				f.effects = map[string]effect{}
				ch := changeOf(c, "cp-1", false, false)
				test.change(ch.req, f)

				why, err := c.unnoticed(t.Context(), ch.req)
				if test.refused != "" {
					require.ErrorContains(t, err, test.refused)

					return
				}

				require.NoError(t, err)
				assert.Contains(t, why, test.want)
				assert.Equal(t, test.want == "", why == "")
				assert.Equal(t, test.restart, ch.req.Restart)
			})
		})
	}
}

const configuration = "version: v1alpha1\nmachine:\n  type: controlplane\ncluster: {}\n"

func TestTheGateLiftsWhatAnInterruptedRunLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, _ := runningCluster()
		g := &gate{watch: c.watch, req: testRequest(), cluster: c}

		require.NoError(t, g.liftLeftovers(t.Context()))
		assert.Empty(t, f.patches)

		for i, annotations := range []map[string]string{nil, {cordonAnnotation: "true"}} {
			f.nodesL[i].Unschedulable, f.nodesL[i].Annotations = true, annotations
		}

		g.listed = f.nodesL
		require.NoError(t, g.liftLeftovers(t.Context()))
		assert.Equal(t, []string{"cp-2 schedulable"}, f.patches, "the other's cordon is someone else's")
	})
}
