package verbs

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/verbtest"
)

// fakeNodes are the Node objects of a cluster; a change of one is counted.
type fakeNodes struct {
	clustertest.Unimplemented

	mu      sync.Mutex
	list    []kube.Node
	listErr map[string]error // by the address of a control plane
	patched map[string]int
	refuse  func(node string, times int) error
	onList  func(n *fakeNodes)
}

func (n *fakeNodes) Nodes(_ context.Context, address string) ([]kube.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.onList != nil {
		n.onList(n)
	}

	return n.list, n.listErr[address]
}

func (n *fakeNodes) PatchNode(_ context.Context, _, node string, _ kube.NodePatch) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.patched == nil {
		n.patched = map[string]int{}
	}

	n.patched[node]++
	if n.refuse != nil {
		return n.refuse(node, n.patched[node])
	}

	return nil
}

func marksOf(nodes ...string) (list []marks) {
	for _, name := range nodes {
		list = append(list, marks{Node: name, Labels: map[string]string{"tier": "db"}})
	}

	return list
}

func runMarker(ctx context.Context, list []marks, api kube.Interface) (string, error) {
	c, said := clustertest.Of(nil, api)
	err := (&marker{Cluster: c, marks: list}).mark(ctx)

	return said.String(), err
}

func TestNodesAreMarkedAsTheyRegister(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		api := &fakeNodes{
			list:    []kube.Node{{Name: "w-1"}, {Name: "theirs"}},
			listErr: map[string]error{"127.0.9.1": errors.New("connection refused")},
		}
		api.onList = func(n *fakeNodes) {
			if lists++; lists == 5 {
				n.list = append(n.list, kube.Node{Name: "w-2"})
			}
		}
		said, err := runMarker(t.Context(), marksOf("w-1", "w-2"), api)
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"w-1": 1, "w-2": 1}, api.patched, "each node once, and no one else's")
		assert.ElementsMatch(t, []string{
			"w-1: labels and taints: 1 label set",
			"waits: w-2: labels and taints: its node is not registered",
			"w-2: labels and taints: 1 label set",
			"labels and taints of nodes are up to date: 2",
		}, strings.Split(strings.TrimSpace(said), "\n"))
	})
}

func TestANodeThatWasChangedMeanwhileIsComparedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &fakeNodes{list: []kube.Node{{Name: "w-1"}}, refuse: func(_ string, times int) error {
			if times == 1 {
				return kube.ErrChanged
			}

			return nil
		}}
		_, err := runMarker(t.Context(), marksOf("w-1"), api)
		require.NoError(t, err)
		assert.Equal(t, 2, api.patched["w-1"])
	})
}

func TestMarkingEndsAtItsLimit(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		api  *fakeNodes
		says string
	}{
		"a node that never comes": {
			&fakeNodes{list: []kube.Node{{Name: "w-1"}}},
			"not all nodes have their labels and taints after 1m0s; 1 of 2 checks are open:\n  w-2: labels and taints: its node is not registered\n",
		},
		"no API that answers": {
			&fakeNodes{
				listErr: map[string]error{
					"127.0.9.1": errors.New("one"), "127.0.9.2": errors.New("two"), "127.0.9.3": errors.New("three"),
				},
			},
			"w-1: labels and taints: no Kubernetes API lists the nodes: three\n",
		},
		"another provider id": {
			&fakeNodes{list: []kube.Node{{Name: "w-1", ProviderID: "proxmox://old/3000"}, {Name: "w-2"}}},
			"w-1: labels and taints: its provider id is proxmox://old/3000 instead of proxmox://homelab/3000, and Kubernetes lets " +
				"no one change it: delete the Node object and restart its kubelet, or set the region back\n",
		},
		"a refusal": {
			&fakeNodes{
				list:   []kube.Node{{Name: "w-1"}, {Name: "w-2"}},
				refuse: func(string, int) error { return errors.New("403 Forbidden: no") },
			},
			"w-2: labels and taints: the Kubernetes API does not take the change: 403 Forbidden: no\n",
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			start := time.Now()
			list := marksOf("w-1", "w-2")
			list[0].ProviderID = "proxmox://homelab/3000"
			_, err := runMarker(t.Context(), list, test.api)
			require.ErrorContains(t, err, test.says)
			assert.Equal(t, time.Minute, time.Since(start))
		})
	}
}

// TestMarkTalksToTheKubernetesAPI: the requests as the API server gets them, through the command.
func TestMarkTalksToTheKubernetesAPI(t *testing.T) {
	t.Parallel()

	api := clustertest.NewAPI(map[string]string{
		"/api/v1/nodes/w-1": `{"kind":"Node","apiVersion":"v1","metadata":{"name":"w-1","resourceVersion":"7"},
			"spec":{"taints":[{"key":"a","effect":"NoExecute","timeAdded":"2026-11-21T00:00:00Z"}]}}`,
	})
	api.Refuse = func(_ *http.Request, w clustertest.Write) *metav1.Status {
		if w.Method != http.MethodPatch || len(api.Writes) > 1 {
			return nil
		}

		return &metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict}
	}

	served := clustertest.Serve(t, &clustertest.TalosNode{}, api)
	stdout, stderr, err := run(t, "mark", request.Mark{
		Common: served.Common, Kubeconfig: served.Kubeconfig,
		Marks: []marks{{Node: "w-1", Taints: []taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}}}},
	}, verbtest.Never, "--interval", "1ms")
	require.NoError(t, err, stderr)
	assert.Equal(t, `{"marked":["w-1"]}`+"\n", stdout)
	assert.Equal(t, "waits: w-1: labels and taints: the node changed in the meantime\nw-1: labels and taints: 1 taint set\n"+
		"labels and taints of nodes are up to date: 1\n", stderr)

	want := clustertest.Write{
		Method: http.MethodPatch, Path: "/api/v1/nodes/w-1", Type: "application/merge-patch+json",
		Body: `{"metadata":{"resourceVersion":"7","annotations":{"talos-proxmox/taints":"[\"dedicated:NoSchedule\"]"}},` +
			`"spec":{"taints":[{"key":"a","effect":"NoExecute","timeAdded":"2026-11-21T00:00:00Z"},` +
			`{"key":"dedicated","value":"db","effect":"NoSchedule"}]}}`,
	}
	assert.Equal(t, []clustertest.Write{want, want}, api.Writes)
}
