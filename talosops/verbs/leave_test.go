package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
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
	"talos-proxmox/talosops/verbtest"
)

// newLeaver returns the leaver of a node of a running cluster.
func newLeaver(n request.Node, change func(*clustertest.Fake)) (*leaver, *clustertest.Fake, *bytes.Buffer) {
	c, f, progress := clustertest.NewRunning()

	for i := range f.MemberList {
		f.MemberList[i].ID = uint64(i + 1)
	}

	for i := range f.NodeList {
		f.NodeList[i].UID = "uid-" + f.NodeList[i].Name
	}

	if change != nil {
		change(f)
	}

	req := &leaveRequest{
		Leave: request.Leave{Common: request.Common{ControlPlanes: c.ControlPlanes}, Node: n},
	}
	rest := &cluster.Cluster{Watch: c.Watch, ControlPlanes: req.otherControlPlanes(), Talos: f, Kubernetes: f}

	return &leaver{Cluster: rest, req: req, result: request.LeaveResult{Node: n.Name}}, f, progress
}

func TestLeave(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	worker := request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}
	third := request.Node{Name: "cp-3", Address: netip.MustParseAddr("127.0.9.3")}
	dead := errors.New("no route to host")
	kill := func(f *clustertest.Fake, n request.Node) {
		f.Down[n.Address.String()], f.Down["etcd "+n.Address.String()], f.APIDown[n.Address.String()] = dead, dead, dead
	}
	web := kube.Pod{Namespace: "default", Name: "web", UID: "1"}

	for name, test := range map[string]struct {
		node   request.Node
		change func(*clustertest.Fake)
		says   string
	}{
		"a worker": {
			node: worker,
			says: "w-1: node: is cordoned\nw-1: boot: wipes itself and shuts down\n" +
				"waits: w-1: boot: has not shut down yet\n",
		},
		"a control plane": {
			node: third, says: "etcd: no snapshot is taken: the stack sets no backup.recipients\n",
		},
		"a leader that cannot give up its leadership": {
			node: third, change: func(f *clustertest.Fake) { f.ActionErrors["forfeit"] = errors.New("timed out") },
			says: "cp-3: etcd: keeps its leadership: timed out\n",
		},
		"a dead worker": {
			node: worker, change: func(f *clustertest.Fake) {
				kill(f, worker)
				f.NodeList[3].Ready, f.NodeList[3].Unreachable = false, true
				f.Pods["w-1"] = []kube.Pod{web}
			},
			says: "w-1: boot: does not answer, so it is not reset before its VM is deleted\n",
		},
		"a worker whose Talos API nobody reaches": {
			node: worker, change: func(f *clustertest.Fake) {
				makeUnreachable(f, worker.Address.String())
				f.Pods["w-1"] = []kube.Pod{web}
			},
		},
		"a worker whose Talos API nobody reaches, and a budget": {
			node: worker, change: func(f *clustertest.Fake) {
				makeUnreachable(f, worker.Address.String())
				f.Pods["w-1"], f.EvictionErrors["web"] = []kube.Pod{web}, "The disruption budget web needs 3 healthy pods"
			},
		},
		"a worker that dies while it is drained": {
			node: worker, change: func(f *clustertest.Fake) {
				kill(f, worker)

				f.Pods["w-1"], f.EvictionErrors["web"] = []kube.Pod{web}, "its node is away"

				f.After(50*time.Second, func() { f.NodeList[3].Ready, f.NodeList[3].Unreachable = false, true })
			},
			says: "w-1: drain: stops: its kubelet no longer reports, so its pods would never terminate\n",
		},
		"a dead control plane": {
			node: third, change: func(f *clustertest.Fake) { kill(f, third) },
			says: "cp-3: etcd: is no longer a member\n",
		},
		"nothing is there": {
			node: third, change: func(f *clustertest.Fake) {
				kill(f, third)
				f.MemberList, f.NodeList = f.MemberList[:2], slices.Delete(f.NodeList, 2, 3)
			},
		},
		"a machine that had left etcd": {
			node: third, change: func(f *clustertest.Fake) { f.MemberList = f.MemberList[:2] },
		},
		"a machine without a node": {
			node: worker, change: func(f *clustertest.Fake) { f.NodeList = f.NodeList[:3] },
		},
		"a member that is another one meanwhile": {
			node: third, change: func(f *clustertest.Fake) {
				kill(f, third)
				f.After(20*time.Second, func() {
					f.MemberList[2].ID, f.NodeList[2].UID = 77, "new"
				})
			},
			says: "cp-3: node: is deleted\n",
		},
		"the others are not healthy": {
			node: third, change: func(f *clustertest.Fake) { kill(f, request.Node{Address: netip.MustParseAddr("127.0.9.2")}) },
		},
		"it is the only member": {
			node: third, change: func(f *clustertest.Fake) { f.MemberList = f.MemberList[2:] },
		},
		"etcd does not let it go": {
			node: third,
			change: func(f *clustertest.Fake) {
				f.ActionErrors["leave"] = errors.New("etcdserver: unhealthy cluster")
			},
		},
		"it cannot be reset": {
			node: worker, change: func(f *clustertest.Fake) { f.ActionErrors["reset"] = errors.New("locked") },
		},
		"it does not shut down": {node: worker, change: func(f *clustertest.Fake) { f.RespondsAfterReset = true }},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			l, f, progress := newLeaver(test.node, test.change)

			err := l.leave(t.Context())
			golden.Equal(t, name, slices.Compact(f.Actions), fmt.Sprintf("pods on it: %d", len(f.Pods[test.node.Name])), err)
			assert.Contains(t, progress.String(), test.says)
			assert.Empty(t, f.Held.HolderIdentity, "the lease is free again")
			time.Sleep(time.Hour) // lets the fake's timers fire
		})
	}
}

// TestLeaveNeverTouchesAnotherMachine: a replacement has another boot id.
func TestLeaveNeverTouchesAnotherMachine(t *testing.T) {
	t.Parallel()

	for _, n := range []request.Node{{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}, {Name: "cp-3", Address: netip.MustParseAddr("127.0.9.3")}} {
		verbtest.InBubble(t, n.Name, func(t *testing.T) {
			l, f, _ := newLeaver(n, func(f *clustertest.Fake) {
				f.Pods[n.Name] = []kube.Pod{{Namespace: "default", Name: "web", UID: "1", Terminating: true}}
			})

			f.After(10*time.Second, func() {
				f.Pods[n.Name], f.Boots[n.Address.String()] = nil, "another"
			})

			err := l.leave(t.Context())
			require.ErrorContains(t, err, "it has rebooted since, or is another machine: run the same again")
			assert.Equal(t, []string{n.Name + " cordoned", n.Name + " schedulable"}, f.Actions)
		})
	}
}

func TestLeaveOpensItsCluster(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	third, worker := request.Node{Name: "cp-3", Address: netip.MustParseAddr("127.0.9.3")}, request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}
	lose := func(f *clustertest.Fake, addresses ...string) { // their machines were recreated
		for _, address := range addresses {
			f.NoEtcdDataOn[address], f.Down["etcd "+address] = true, errors.New("etcdserver: no leader")
			f.NodeServices[address] = []talosapi.Service{{ID: "etcd", State: "Preparing"}}
		}
	}
	refuse := func(f *clustertest.Fake, why string) {
		for _, address := range []string{"127.0.9.1", "127.0.9.2"} {
			f.Down[address] = errors.New("rpc error: code = Unavailable desc = connection error: desc = " + why)
		}
	}

	for name, test := range map[string]struct {
		node   request.Node
		change func(*clustertest.Fake, *leaveRequest)
	}{
		"of those that answer": {third, func(f *clustertest.Fake, _ *leaveRequest) {
			f.Down["127.0.9.1"] = errors.New("no route to host")
		}},
		"that has lost all its data": {third, func(f *clustertest.Fake, _ *leaveRequest) {
			lose(f, "127.0.9.1", "127.0.9.2", "127.0.9.3")
		}},
		"whose only data it has": {third, func(f *clustertest.Fake, _ *leaveRequest) { lose(f, "127.0.9.1", "127.0.9.2") }},
		"whose only data it may have": {third, func(f *clustertest.Fake, _ *leaveRequest) {
			lose(f, "127.0.9.1", "127.0.9.2")
			f.Down["127.0.9.3"] = errors.New("no route to host")
		}},
		"whose only data it may have while it boots": {third, func(f *clustertest.Fake, _ *leaveRequest) {
			lose(f, "127.0.9.1", "127.0.9.2", "127.0.9.3")
			f.NodeServices["127.0.9.3"] = nil
		}},
		"of a worker, that has lost all its data": {worker, func(f *clustertest.Fake, _ *leaveRequest) {
			lose(f, "127.0.9.1", "127.0.9.2", "127.0.9.3")
		}},
		"that may be where no one answers": {third, func(f *clustertest.Fake, _ *leaveRequest) {
			lose(f, "127.0.9.2")
			f.Down["127.0.9.1"] = errors.New("no route to host")
		}},
		"whose only control plane it is": {third, func(_ *clustertest.Fake, r *leaveRequest) {
			r.ControlPlanes = []request.Node{third}
		}},
		"whose only control plane it is, without data": {third, func(f *clustertest.Fake, r *leaveRequest) {
			r.ControlPlanes = []request.Node{third}

			lose(f, "127.0.9.3")
		}},
		"with a certificate that has expired": {third, func(f *clustertest.Fake, _ *leaveRequest) {
			refuse(f, `"error reading server preface: remote error: tls: expired certificate"`)
		}},
		"after its authority was replaced": {worker, func(f *clustertest.Fake, r *leaveRequest) {
			r.ControlPlanes = r.ControlPlanes[:2]

			refuse(f, `"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by `+
				`unknown authority"`)
		}},
		"while one of its control planes is in maintenance mode": {third, func(f *clustertest.Fake, _ *leaveRequest) {
			refuse(f, "x509: certificate signed by unknown authority")
			f.Down["127.0.9.2"] = errors.New("no route to host")
		}},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			l, f, _ := newLeaver(test.node, nil)
			test.change(f, l.req)

			var opened []string

			began := time.Now()
			err := connectOthers(t.Context(), l.Cluster, l.req, func(_ context.Context, others []request.Node) error {
				opened = nil
				for _, n := range others {
					opened = append(opened, n.Name)
				}

				return nil
			})
			golden.Equal(t, name, "after "+time.Since(began).Round(time.Minute).String(), opened, err)
		})
	}
}

// TestLeaveKeepsASnapshotBefore: if the snapshot fails, no member leaves.
func TestLeaveKeepsASnapshotBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leaving := request.Node{Name: "cp-3", Address: netip.MustParseAddr("127.0.9.3")}
		l, f, _ := newLeaver(leaving, func(f *clustertest.Fake) {
			for _, address := range []string{"127.0.9.1", "127.0.9.2"} {
				f.SnapshotFuncs[address] = func(context.Context, io.Writer) error { return errors.New("rpc error: no space") }
			}
		})
		l.req.Backup = testBackup(t)

		require.ErrorContains(t, l.leave(t.Context()), "there is no snapshot of etcd after 1m0s")
		assert.Empty(t, f.Actions, "the node was not cordoned yet")
	})
}

// TestDeleteNode: another Node object of the same name stays.
func TestDeleteNode(t *testing.T) {
	t.Parallel()

	clients, address := clustertest.ServeKubernetes(t, clustertest.NewAPI(map[string]string{
		"/api/v1/nodes/w-1": `{"kind":"Node","apiVersion":"v1","metadata":{"name":"w-1","uid":"a"}}`,
	}))

	err := clients.DeleteNode(t.Context(), address, kube.Node{Name: "w-1", UID: "b"})
	require.ErrorContains(t, err, "409 Conflict: Precondition")
	require.NoError(t, clients.DeleteNode(t.Context(), address, kube.Node{Name: "w-1", UID: "a"}))
	require.NoError(t, clients.DeleteNode(t.Context(), address, kube.Node{Name: "w-1", UID: "a"}), "it is gone")
}

func TestAProtectedNodeStaysInItsCluster(t *testing.T) {
	t.Parallel()

	protected := &leaveRequest{Leave: request.Leave{Node: request.Node{Name: "one-cp-2"}, Protected: true}}
	_, err := runLeave(t.Context(), nil, protected)
	require.ErrorContains(t, err, "one-cp-2 stays in its cluster: its VM is protected on Proxmox")
}
