package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/kubeupgrade"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
)

const oldKubernetes, newKubernetesVersion = "v1.34.3", "v1.35.2"

// kubernetesCluster is a cluster that a fake of Talos' library upgrades.
type kubernetesCluster struct {
	*clustertest.Fake

	images   map[string]kubeupgrade.Images // by address
	proxy    string
	proxyErr error // of requests for kube-proxy

	upgradeErr error
	calls      []kubeupgrade.Request
	progress   *bytes.Buffer
}

func imagesOf(version string) kubeupgrade.Images {
	return kubeupgrade.Images{
		APIServer: "registry.k8s.io/kube-apiserver:" + version, ControllerManager: "registry.k8s.io/kube-controller-manager:" + version,
		Scheduler: "mirror.example.org:5000/kube-scheduler:" + version + "@sha256:42", Kubelet: "ghcr.io/siderolabs/kubelet:" + version + "-slim",
	}
}

// newKubernetesCluster has three control planes and two workers, all of them Ready.
func newKubernetesCluster(change func(*kubernetesCluster, *kubernetesRequest)) (*kubernetesUpgrader, *kubernetesCluster) {
	c, running, progress := clustertest.NewRunning()
	f := &kubernetesCluster{
		Fake: running, images: map[string]kubeupgrade.Images{}, progress: progress,
		proxy: "registry.k8s.io/kube-proxy:" + oldKubernetes,
	}

	for i := range f.NodeList {
		f.NodeList[i].Kubelet = oldKubernetes
	}

	for _, n := range c.ControlPlanes {
		f.images[n.Address.String()] = imagesOf(oldKubernetes)
	}

	req := &kubernetesRequest{Kubernetes: request.Kubernetes{
		Common: clustertest.ControlPlanes(), KubernetesVersion: newKubernetesVersion, Talosconfig: "secret",
	}}
	if change != nil {
		change(f, req)
	}

	c.Talos, c.Kubernetes = f, f

	u := newKubernetesUpgrader(c, req)
	u.connect = func(_ context.Context, controlPlanes []request.Node) (*cluster.Cluster, error) {
		return &cluster.Cluster{Watch: c.Watch, ControlPlanes: controlPlanes, Talos: f, Kubernetes: f}, nil
	}
	u.upgradeLibrary = f.fakeUpgrade

	return u, f
}

func (f *kubernetesCluster) KubernetesImages(_ context.Context, address netip.Addr) (kubeupgrade.Images, error) {
	return clustertest.Lookup(f.Fake, f.images, address, "")
}

func (f *kubernetesCluster) KubeProxy(context.Context, netip.Addr) (string, error) {
	return f.proxy, f.proxyErr
}

// fakeUpgrade stands for Talos' library.
func (f *kubernetesCluster) fakeUpgrade(_ context.Context, req kubeupgrade.Request, progress io.Writer) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	f.calls = append(f.calls, req)

	if f.upgradeErr != nil {
		return f.upgradeErr
	}

	_, _ = io.WriteString(progress, "cp-1: kube-apiserver: starting update (3s)\n")

	for _, address := range req.Endpoints {
		f.images[address] = imagesOf(req.To)
	}

	if f.proxy != "" {
		f.proxy = "registry.k8s.io/kube-proxy:" + req.To
	}

	for i := range f.NodeList {
		if req.Kubelets {
			f.NodeList[i].Kubelet = req.To
		}
	}

	return nil
}

func TestKubernetesIsUpgraded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, f := newKubernetesCluster(func(_ *kubernetesCluster, req *kubernetesRequest) {
			req.Backup = testBackup(t)
		})
		require.NoError(t, u.run(t.Context()))

		assert.Equal(t, []kubeupgrade.Request{{
			Talosconfig: "secret", Endpoints: []string{"127.0.9.1", "127.0.9.2", "127.0.9.3"},
			Nodes: []request.Node{
				{Name: "cp-1", Address: netip.MustParseAddr("127.0.9.1")},
				{Name: "cp-2", Address: netip.MustParseAddr("127.0.9.2")},
				{Name: "cp-3", Address: netip.MustParseAddr("127.0.9.3")},
				{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")},
				{Name: "w-2", Address: netip.MustParseAddr("127.0.9.5")},
			},
			From: oldKubernetes, To: newKubernetesVersion, Kubelets: true,
			Images: kubeupgrade.Images{
				APIServer: "registry.k8s.io/kube-apiserver", ControllerManager: "registry.k8s.io/kube-controller-manager",
				Scheduler: "mirror.example.org:5000/kube-scheduler", Proxy: "registry.k8s.io/kube-proxy",
				Kubelet: "ghcr.io/siderolabs/kubelet",
			},
		}}, f.calls)
		assert.Len(t, f.Snapshots, 1)
		assert.Empty(t, f.Held.HolderIdentity, "the lease is free again")
		assert.Equal(t, 2, f.Updates, "taken and given back")
		assert.Regexp(t, `^cp-1: etcd: taking a snapshot\netcd: snapshot \S+\nKubernetes: v1.34.3 → v1.35.2\n`+
			`cp-1: kube-apiserver: starting update \(3s\)\nKubernetes: v1.35.2 runs\n$`, f.progress.String())

		f.progress.Reset()
		require.NoError(t, u.run(t.Context()))
		assert.Len(t, f.calls, 1)
		assert.Equal(t, 2, f.Updates, "no lease is taken where there is nothing to do")
		assert.Equal(t, "Kubernetes: v1.35.2 runs already: nothing to do\n", f.progress.String())
	})
}

// TestAnInterruptedUpgradeOfKubernetesResumes from each state that an interrupt may leave.
func TestAnInterruptedUpgradeOfKubernetesResumes(t *testing.T) {
	t.Parallel()

	for name, reached := range map[string]func(*kubernetesCluster){
		"one API server": func(f *kubernetesCluster) {
			f.images["127.0.9.1"] = kubeupgrade.Images{
				APIServer: imagesOf(newKubernetesVersion).APIServer, ControllerManager: imagesOf(oldKubernetes).ControllerManager,
			}
		},
		"all but a kubelet": func(f *kubernetesCluster) {
			_ = f.fakeUpgrade(nil, kubeupgrade.Request{ //nolint:staticcheck // the fake needs no context
				To: newKubernetesVersion, Kubelets: true, Endpoints: []string{"127.0.9.1", "127.0.9.2", "127.0.9.3"},
			}, io.Discard)
			f.NodeList[4].Kubelet, f.calls = oldKubernetes, nil
		},
		"all but kube-proxy's manifest": func(f *kubernetesCluster) {
			_ = f.fakeUpgrade(nil, kubeupgrade.Request{ //nolint:staticcheck // the fake needs no context
				To: newKubernetesVersion, Kubelets: true, Endpoints: []string{"127.0.9.1", "127.0.9.2", "127.0.9.3"},
			}, io.Discard)
			f.proxy, f.calls = "registry.k8s.io/kube-proxy:"+oldKubernetes, nil
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			u, f := newKubernetesCluster(func(f *kubernetesCluster, _ *kubernetesRequest) { reached(f) })
			require.NoError(t, u.run(t.Context()))
			require.Len(t, f.calls, 1)
			assert.Equal(t, oldKubernetes, f.calls[0].From)
			assert.Contains(t, f.progress.String(), "etcd: no snapshot is taken: the stack sets no backup.recipients")
		})
	}
}

func TestWithoutACNIKubeletsFollowTheirConfigurations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, f := newKubernetesCluster(func(f *kubernetesCluster, _ *kubernetesRequest) {
			f.proxy = ""
			for i := range f.NodeList {
				f.NodeList[i].Ready = false
			}
		})
		require.NoError(t, u.run(t.Context()))
		require.Len(t, f.calls, 1)
		assert.False(t, f.calls[0].Kubelets)
		assert.Empty(t, f.calls[0].Images.Proxy)
		assert.Contains(t, f.progress.String(), "kubelets: no node is Ready, as without a CNI")

		require.NoError(t, u.run(t.Context()))
		assert.Len(t, f.calls, 1)
	})
}

// TestASkippedWorkerStaysAsItIs: Talos' library waits for all nodes when it upgrades kubelets, so they are left to the
// machine configurations while a worker is skipped.
func TestASkippedWorkerStaysAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, f := newKubernetesCluster(func(f *kubernetesCluster, req *kubernetesRequest) {
			f.NodeList[4].Ready = false
			req.Skip = []string{"w-2"}
		})
		require.NoError(t, u.run(t.Context()))
		require.Len(t, f.calls, 1)
		assert.False(t, f.calls[0].Kubelets)
		assert.NotContains(t, f.calls[0].Nodes, request.Node{Name: "w-2", Address: f.NodeList[4].Address})
		assert.Contains(t, f.progress.String(), "kubelets: their upgrade would wait for what is skipped (w-2)")

		f.NodeList[4].Ready = true

		u.req.Skip = nil
		require.NoError(t, u.run(t.Context()))
		require.Len(t, f.calls, 2)
		assert.True(t, f.calls[1].Kubelets)
	})
}

// TestWhereThereIsNoCluster: the verb returns at once, and does nothing.
func TestWhereThereIsNoCluster(t *testing.T) {
	t.Parallel()

	refused := errors.New("connection refused")

	for name, change := range map[string]func(*kubernetesCluster){
		"no control plane has data of etcd": func(f *kubernetesCluster) {
			f.NoEtcdData = true
		},
		"none answers": func(f *kubernetesCluster) {
			f.Down = map[string]error{"127.0.9.1": refused, "127.0.9.2": refused, "127.0.9.3": refused}
		},
		"one has none, and the others do not answer": func(f *kubernetesCluster) {
			f.NoEtcdDataOn["127.0.9.1"] = true
			f.Down = map[string]error{"127.0.9.2": refused, "127.0.9.3": refused}
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			u, f := newKubernetesCluster(func(f *kubernetesCluster, _ *kubernetesRequest) { change(f) })
			began := time.Now()

			require.NoError(t, u.run(t.Context()))
			assert.Empty(t, f.calls)
			assert.Zero(t, f.Updates)
			assert.Equal(t, began, time.Now())
		})
	}
}

// TestAClusterThatLostEtcdIsNoNewOne: what it runs is not known, so nothing may be upgraded afterwards either.
func TestAClusterThatLostEtcdIsNoNewOne(t *testing.T) {
	t.Parallel()

	refused := errors.New("connection refused")

	for name, test := range map[string]struct {
		change func(*kubernetesCluster)
		fails  string
	}{
		"no control plane has data of etcd": {
			func(f *kubernetesCluster) { f.NoEtcdData = true },
			"no Kubernetes is upgraded: its cluster was bootstrapped, and no control plane (cp-1, cp-2, cp-3) has etcd data",
		},
		"one has none, and another does not answer": {
			func(f *kubernetesCluster) {
				f.NoEtcdDataOn["127.0.9.1"], f.NoEtcdDataOn["127.0.9.3"] = true, true
				f.Down = map[string]error{"127.0.9.2": refused}
			},
			"and cp-2 does not say whether it has any: connection refused",
		},
		"none answers, which a user has accepted": {change: func(f *kubernetesCluster) {
			f.Down = map[string]error{"127.0.9.1": refused, "127.0.9.2": refused, "127.0.9.3": refused}
		}},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			u, f := newKubernetesCluster(func(f *kubernetesCluster, req *kubernetesRequest) {
				req.Bootstrapped = true

				test.change(f)
			})

			verbtest.RequireError(t, u.run(t.Context()), test.fails)
			assert.Empty(t, f.calls)
		})
	}
}

// TestANewControlPlaneIsLeftAlone, whether it is unreachable or has no data; an unreachable one of the cluster is not.
func TestANewControlPlaneIsLeftAlone(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, change := range map[string]func(*kubernetesCluster){
		"it does not answer": func(f *kubernetesCluster) { f.Down["127.0.9.3"] = errors.New("no route to host") },
		"it waits to join":   func(f *kubernetesCluster) { f.NoEtcdDataOn["127.0.9.3"] = true },
		"its node is registered": func(f *kubernetesCluster) {
			f.Down["127.0.9.3"] = errors.New("no route to host")
			f.NodeList = append(f.NodeList, kube.Node{
				Name: "cp-3", Address: netip.MustParseAddr("127.0.9.3"), Kubelet: oldKubernetes,
			})
		},
		"it is a member": func(f *kubernetesCluster) {
			f.Down["127.0.9.3"] = errors.New("no route to host")
			f.MemberList = append(f.MemberList, talosapi.Member{Hostname: "cp-3"})
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			u, f := newKubernetesCluster(func(f *kubernetesCluster, _ *kubernetesRequest) {
				f.MemberList = f.MemberList[:2]
				f.NodeList = append(f.NodeList[:2:2], f.NodeList[3:]...)
				change(f)
			})
			err := u.run(t.Context())

			var upgraded []string
			for _, call := range f.calls {
				upgraded = append(upgraded, call.Endpoints...)
			}

			golden.Equal(t, name, upgraded, err)
		})
	}
}

// TestRefusedUpgradesOfKubernetes: the error names the reason, and the cluster stays unchanged.
func TestRefusedUpgradesOfKubernetes(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, change := range map[string]func(*kubernetesCluster, *kubernetesRequest){
		"two minors": func(_ *kubernetesCluster, req *kubernetesRequest) { req.KubernetesVersion = "v1.36.0" },
		"an older one": func(f *kubernetesCluster, req *kubernetesRequest) {
			req.KubernetesVersion = oldKubernetes
			f.images["127.0.9.2"] = imagesOf("v1.35.1")
		},
		"an API server that is a model": func(f *kubernetesCluster, _ *kubernetesRequest) {
			f.proxy, f.proxyErr = "", &kube.NotServedError{Message: "it is a model"}
		},
		"a node that is not Ready": func(f *kubernetesCluster, _ *kubernetesRequest) { f.NodeList[4].Ready = false },
		"what the library says": func(f *kubernetesCluster, _ *kubernetesRequest) {
			f.upgradeErr = errors.New("flag was removed")
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			u, f := newKubernetesCluster(change)
			before := f.images["127.0.9.1"]

			golden.Equal(t, name, u.run(t.Context()), fmt.Sprintf("the lease was taken: %t", f.Updates > 0))
			assert.Equal(t, before, f.images["127.0.9.1"])
			assert.Empty(t, f.Held.HolderIdentity)
		})
	}
}

// TestAnUpgradeThatDidNotTakeEffect is an error, even if the library reports none.
func TestAnUpgradeThatDidNotTakeEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, f := newKubernetesCluster(nil)
		u.upgradeLibrary = func(context.Context, kubeupgrade.Request, io.Writer) error {
			f.images["127.0.9.1"] = imagesOf(newKubernetesVersion)

			return nil
		}
		err := u.run(t.Context())
		require.ErrorContains(t, err, "not everything runs Kubernetes v1.35.2:\n")
		require.ErrorContains(t, err, "\n  cp-2: API server v1.34.3\n")
		assert.NotContains(t, err.Error(), "cp-1: API server")
	})
}

// TestAnotherOperatorMayHaveUpgraded: another operator upgraded the cluster while this one waited for the lease.
func TestAnotherOperatorMayHaveUpgraded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, f := newKubernetesCluster(nil)
		f.Take("someone")
		time.AfterFunc(5*time.Second, func() {
			_ = f.fakeUpgrade(t.Context(), kubeupgrade.Request{
				To: newKubernetesVersion, Kubelets: true, Endpoints: []string{"127.0.9.1", "127.0.9.2", "127.0.9.3"},
			}, io.Discard)
			f.calls = nil
		})
		require.NoError(t, u.run(t.Context()))
		assert.Empty(t, f.calls)
		assert.Contains(t, f.progress.String(), "lease: someone")
		assert.True(t, strings.HasSuffix(f.progress.String(), "nothing to do\n"), f.progress.String())
	})
}

// TestKubeProxyOverRealConnections distinguishes a DaemonSet, a missing one, and an API server without DaemonSets.
func TestKubeProxyOverRealConnections(t *testing.T) {
	t.Parallel()

	const (
		at    = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"
		image = "registry.k8s.io/kube-proxy:v1.35.0"
	)

	for name, test := range map[string]struct {
		api         map[string]string
		refused     *metav1.Status
		image, says string
	}{
		"there": {api: map[string]string{at: `{"kind":"DaemonSet","apiVersion":"apps/v1","spec":{"template":{"spec":{"containers":[
			{"name":"kube-proxy","image":"` + image + `"}]}}}}`}, image: image},
		"not there": {},
		"a model": {
			refused: &metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "it is a model"},
			says:    "it is a model",
		},
		"an error": {refused: &metav1.Status{Code: http.StatusInternalServerError}, says: "500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := clustertest.NewAPI(test.api)
			api.Refuse = func(*http.Request, clustertest.Write) *metav1.Status { return test.refused }
			k, address := clustertest.ServeKubernetes(t, api)

			found, err := k.KubeProxy(t.Context(), address)
			assert.Equal(t, test.image, found)

			if test.says == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.says)
			}
		})
	}

	k, address := clustertest.ServeKubernetes(t, http.NotFoundHandler())
	_, err := k.KubeProxy(t.Context(), address)
	require.EqualError(t, err, "404 page not found", "an API without the kind")
}
