package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
)

func TestSteadyToleratesHealthySurplus(t *testing.T) {
	t.Parallel()

	c, f, progress := clustertest.NewRunning()
	f.MemberList = append(f.MemberList, talosapi.Member{Hostname: "cp-4", PeerURLs: []string{"https://127.0.9.9:2380"}})
	f.Statuses["127.0.9.9"] = talosapi.EtcdStatus{HasLeader: true}
	w := request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}

	before, err := c.ReadNodeState(t.Context(), w)
	require.NoError(t, err)
	assert.Equal(t, cluster.NodeState{Node: w, Registered: true, Ready: true}, before)
	require.NoError(t, c.AwaitSteady(t.Context(), before))
	assert.Empty(t, progress.String(), "nothing is waited for")
}

func TestSteadyNamesWhatIsMissing(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, change := range map[string]func(*clustertest.Fake){
		"a further member that is a learner": func(f *clustertest.Fake) {
			f.MemberList = append(f.MemberList, talosapi.Member{Hostname: "cp-4", Learner: true})
		},
		"a further member that is down": func(f *clustertest.Fake) {
			f.MemberList = append(f.MemberList, talosapi.Member{Hostname: "cp-4", PeerURLs: []string{"https://127.0.9.9:2380"}})
			f.Down["etcd 127.0.9.9"] = errors.New("connection refused")
		},
		"a member without a leader": func(f *clustertest.Fake) { f.Statuses["127.0.9.2"] = talosapi.EtcdStatus{} },
		"a member with an error": func(f *clustertest.Fake) {
			f.Statuses["127.0.9.2"] = talosapi.EtcdStatus{HasLeader: true, Errors: []string{"etcdserver: no space"}}
		},
		"an alarm": func(f *clustertest.Fake) { f.Alarms = []string{"NOSPACE of member 2a"} },
		"an API that is not ready": func(f *clustertest.Fake) {
			f.APIDown["127.0.9.3"] = errors.New("500 Internal Server Error")
		},
		"a machine that is silent": func(f *clustertest.Fake) { f.Down["127.0.9.3"] = errors.New("no route to host") },
		"a node that is not Ready": func(f *clustertest.Fake) { f.NodeList[3].Ready = false },
		"a node that is gone":      func(f *clustertest.Fake) { f.NodeList = f.NodeList[:3] },
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewRunning()
			change(f)

			golden.Equal(t, name, c.AwaitSteady(t.Context(), cluster.NodeState{
				Node: request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}, Registered: true, Ready: true,
			}))
		})
	}
}

func TestANodeThatWasNotReadyMayStaySo(t *testing.T) {
	t.Parallel()

	c, f, _ := clustertest.NewRunning()
	f.NodeList[3].Ready = false

	require.NoError(t, c.AwaitSteady(t.Context(), cluster.NodeState{
		Node: request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}, Registered: true,
	}))
}

func TestDrain(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	w := request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}
	web := kube.Pod{Namespace: "default", Name: "web", UID: "1"}
	proxy := kube.Pod{Namespace: "kube-system", Name: "kube-proxy", UID: "2", IgnoredByDrain: true}
	ends := kube.Pod{Namespace: "default", Name: "old", UID: "3", Terminating: true}

	for name, change := range map[string]func(*clustertest.Fake){
		"what is not the node's own leaves": func(f *clustertest.Fake) {
			f.Pods["w-1"], f.Conflicts = []kube.Pod{web, proxy}, 1
		},
		"a budget forbids it": func(f *clustertest.Fake) {
			f.Pods["w-1"], f.EvictionErrors["web"] = []kube.Pod{web}, "The disruption budget web needs 3 healthy pods and has 3 currently"
		},
		"a pod does not end": func(f *clustertest.Fake) { f.Pods["w-1"] = []kube.Pod{ends} },
		"someone else's cordon stays": func(f *clustertest.Fake) {
			f.Pods["w-1"], f.NodeList[3].Unschedulable = []kube.Pod{web}, true
		},
		"the kubelet is down": func(f *clustertest.Fake) {
			f.Pods["w-1"], f.NodeList[3].Ready = []kube.Pod{web}, false
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewRunning()
			change(f)

			err := c.Drain(t.Context(), w)
			before := slices.Clone(f.Actions)

			require.NoError(t, c.Uncordon(t.Context(), w))
			golden.Equal(t, name, err, before, "then:", f.Actions[len(before):], f.Pods["w-1"])
		})
	}
}

func TestAnInterruptedDrainUncordons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, _ := clustertest.NewRunning()
		f.Pods["w-1"] = []kube.Pod{{Namespace: "default", Name: "old", UID: "3", Terminating: true}}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)

		err := c.Drain(ctx, request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")})
		require.ErrorContains(t, err, "interrupted before w-1 was drained")
		assert.Equal(t, []string{"w-1 cordoned", "w-1 schedulable"}, f.Actions)
	})
}

func TestAwaitReboot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, f, progress := clustertest.NewRunning()
		n := c.ControlPlanes[0]
		c.Interval = 2 * time.Second
		f.After(15*time.Second, func() { f.Down[n.Address.String()] = errors.New("connection refused") })
		f.After(29*time.Second, func() { f.Down[n.Address.String()], f.Boots[n.Address.String()] = nil, "second" })

		require.NoError(t, c.AwaitReboot(t.Context(), n, "first"))
		assert.Equal(t, "waits: cp-1: boot: has not shut down yet\n"+
			"waits for 16s: cp-1: boot: Talos does not answer on 127.0.9.1\n", progress.String())
		require.ErrorContains(t, c.AwaitReboot(t.Context(), n, "second"),
			"cp-1 has not booted again after 1m0s; 1 of 1 checks are open:\n  cp-1: boot: has not shut down yet")
	})
}

// TestDrainTalksToTheKubernetesAPI compares the requests that the API server gets.
func TestDrainTalksToTheKubernetesAPI(t *testing.T) {
	t.Parallel()

	const (
		pods  = "/api/v1/namespaces/x/pods/"
		evict = `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"web","namespace":"x"},"deleteOptions":{"preconditions":{"uid":"u1"}}}`
	)

	pod := func(metadata, phase string) string {
		return `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"x",` + metadata + `},"status":{"phase":"` + phase + `"}}`
	}
	api := clustertest.NewAPI(map[string]string{
		"/api/v1/nodes/w-1": `{"kind":"Node","apiVersion":"v1","metadata":{"name":"w-1","resourceVersion":"7","annotations":{"a":"b"}},
			"spec":{},"status":{"conditions":[{"type":"Ready","status":"True"}],"addresses":[
			{"type":"Hostname","address":"w-1"},{"type":"InternalIP","address":"10.0.0.30"}]}}`,
		pods + "static": pod(`"name":"static","annotations":{"kubernetes.io/config.mirror":"1"}`, "Running"),
		pods + "set":    pod(`"name":"set","ownerReferences":[{"kind":"DaemonSet","controller":true}]`, "Running"),
		pods + "job":    pod(`"name":"job"`, "Succeeded"),
		pods + "web":    pod(`"name":"web","uid":"u1","ownerReferences":[{"kind":"ReplicaSet","controller":true}]`, "Running"),
	})
	api.Refuse = func(r *http.Request, w clustertest.Write) *metav1.Status {
		if strings.HasSuffix(r.URL.Path, "/pods") {
			assert.Equal(t, "fieldSelector=spec.nodeName%3Dw-1", r.URL.RawQuery)
		}

		if w.Method != http.MethodPost || len(api.Writes) > 2 {
			return nil
		}

		return &metav1.Status{
			Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
			Message: "Cannot evict pod as it would violate the pod's disruption budget.",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "The disruption budget web needs 1"}}},
		}
	}

	clients, address := clustertest.ServeKubernetes(t, api)
	progress := &bytes.Buffer{}
	c := &cluster.Cluster{
		Watch:         &checks.Watch{Timeout: time.Minute, Interval: time.Millisecond, Progress: progress},
		ControlPlanes: []request.Node{{Name: "cp-1", Address: address}}, Kubernetes: clients,
	}
	require.NoError(t, c.Drain(t.Context(), request.Node{Name: "w-1"}))

	var bodies []string
	for _, w := range api.Writes {
		bodies = append(bodies, w.Path+" "+w.Body)
	}

	assert.Equal(t, []string{
		`/api/v1/nodes/w-1 {"metadata":{"resourceVersion":"7","annotations":{"talos-proxmox/cordoned":"true"}},"spec":{"unschedulable":true}}`,
		pods + "web/eviction " + evict, pods + "web/eviction " + evict, // the first one was refused
	}, bodies)
	assert.Contains(t, progress.String(), "w-1: drain: pod x/web cannot be evicted: Cannot evict pod as it would violate the pod's "+
		"disruption budget. The disruption budget web needs 1\n")

	nodes, _, err := c.ListNodes(t.Context())
	require.NoError(t, err)
	assert.Equal(t, kube.Node{
		Name: "w-1", Address: netip.MustParseAddr("10.0.0.30"), Ready: true, Version: "7", Annotations: map[string]string{"a": "b"},
		Allocatable: map[string]string{},
	}, nodes[0])
}
