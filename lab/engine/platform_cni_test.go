package engine_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ciliumStack is a stack whose cluster has Cilium, of the chart of its module.
type ciliumStack struct {
	*testing.T

	w        *world
	file     string
	settings map[string]any
}

func newCiliumStack(t *testing.T) *ciliumStack {
	t.Helper()

	w := realWorld(t)

	archive, err := os.ReadFile(filepath.Join(binaries(), "charts", "cilium.tgz"))
	require.NoError(t, err, "make build-charts packs it")

	registry := newRegistry(t, true)
	digest := registry.push("charts/cilium", "1.20.2", chartConfigType, []byte(`{"name": "cilium", "version": "1.20.2"}`),
		chartType, archive)
	w.trusted = registry.ca

	return &ciliumStack{
		T: t, w: w, file: stack{Network: w.network, Clusters: []cluster{one(1, 1)}}.yaml(t),
		settings: map[string]any{
			"kind": "cilium", "version": "1.20.2", "chart": "oci://" + registry.address + "/charts/cilium", "digest": digest,
			"loadBalancer": map[string]any{
				"addresses": []string{w.network + ".1.200-" + w.network + ".1.210"}, "interfaces": []string{"^eth"},
			},
		},
	}
}

// stack is the stack's file, with settings that differ; nil removes one.
func (c *ciliumStack) stack(differing ...any) string {
	c.Helper()

	settings := map[string]any{}
	for key, value := range c.settings {
		settings[key] = value
	}

	for i := 0; i < len(differing); i += 2 {
		key, _ := differing[i].(string)
		settings[key] = differing[i+1]

		if differing[i+1] == nil {
			delete(settings, key)
		}
	}

	text, err := json.Marshal(settings)
	require.NoError(c, err)

	return strings.Replace(c.file, "      network:\n", "      cni: "+string(text)+"\n      network:\n", 1)
}

func (c *ciliumStack) client() kubernetes.Interface { return kubernetesOf(c.T, c.w.outputs()) }

// revisions are those of the release, by what Helm says of each.
func revisions(client kubernetes.Interface) map[string]int {
	list, err := client.CoreV1().Secrets("kube-system").List(context.Background(), metav1.ListOptions{
		LabelSelector: "owner=helm,name=cilium",
	})
	if err != nil {
		return nil
	}

	found := map[string]int{}
	for _, s := range list.Items {
		found[s.Labels["status"]]++
	}

	return found
}

// killedAt runs an up whose installation of the release is killed at a moment.
func (c *ciliumStack) killedAt(file string, reached func(w *world) bool) {
	c.Helper()

	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()

	c.w.when(ctx, reached, func() { c.w.killCommands("talosops", "cni") })

	_, err := c.w.tryUp(ctx, file)
	require.Error(c, err, "the run ended before it was killed: %s", c.w.said())
}

// there says whether an object of Cilium's kinds is there.
func (c *ciliumStack) there(path string) bool {
	_, err := c.client().CoreV1().RESTClient().Get().AbsPath("/apis/cilium.io/" + path).DoRaw(c.Context())

	return err == nil
}

const ciliumPool = "v2/ciliumloadbalancerippools/talos-proxmox"

// TestPlatformCNI: a cluster gets its network with its first up; runs that are killed are continued, and what is
// refused is said in one message.
func TestPlatformCNI(t *testing.T) {
	t.Parallel()

	c := newCiliumStack(t)
	w := c.w

	var began time.Time

	c.killedAt(c.stack(), func(w *world) bool {
		if began.IsZero() && len(w.commands("talosops", "cni")) > 0 {
			began = time.Now()
		}

		return !began.IsZero() && time.Since(began) > 400*time.Millisecond // in the middle, on most machines
	})
	w.up(c.stack())

	client := c.client()
	assert.Equal(t, 1, revisions(client)["deployed"])
	assert.Zero(t, revisions(client)["pending-install"])
	assert.Contains(t, w.said(), "healthy: etcd members: 1; nodes: 2")
	assert.NotContains(t, w.said(), "are not Ready")
	assert.True(t, c.there(ciliumPool))
	c.publish(client)
	c.address(client, w.network+".1.2")

	leader, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "cilium-operator-resource-lock",
		metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotNil(t, leader.Spec.HolderIdentity)

	w.up(c.stack(), optup.ExpectNoChanges())

	values := func(mtu int) map[string]any { return map[string]any{"MTU": mtu} }
	c.killedAt(c.stack("values", values(1400)), func(*world) bool { return revisions(client)["pending-upgrade"] > 0 })
	assert.Equal(t, 1, revisions(client)["pending-upgrade"])
	c.network("")

	said := len(w.said())
	w.up(c.stack("values", values(1400)))
	assert.Contains(t, w.said()[said:], "was pending-upgrade when a run was interrupted: it is continued")
	assert.Equal(t, 1, revisions(client)["deployed"])
	assert.Zero(t, revisions(client)["pending-upgrade"])
	c.network("1400")

	before := revisions(client)

	for name, fault := range map[string]struct{ stack, says string }{
		"wrong digest": {
			c.stack("digest", "sha256:"+strings.Repeat("0", 64)), "state the digest of what you trust; nothing was changed",
		},
		"chart unreachable": {
			c.stack("chart", "https://127.0.0.1:9/cilium.tgz"), "connection refused: see that this machine reaches it, or name a copy",
		},
		"a value that the chart does not have": {
			c.stack("values", map[string]any{"debug": map[string]any{"enabeld": true}}), "debug.enabeld: write debug.enabled",
		},
		"a value of another type": {
			c.stack("values", map[string]any{"debug": map[string]any{"enabled": "yes"}}), "got string, want boolean",
		},
		"no CNI any more": {c.file, "would leave Cilium, the pod network of cluster one, unmanaged"},
	} {
		assert.Contains(t, w.fails(fault.stack), fault.says, name)
	}

	assert.Equal(t, before, revisions(client), "nothing was changed")
	c.network("1400")

	w.up(c.stack("values", values(1400), "loadBalancer", nil))
	assert.False(t, c.there(ciliumPool))
	c.address(client, "")
	c.hubble(client)
}

// publish makes a Service that wants an address.
func (c *ciliumStack) publish(client kubernetes.Interface) {
	c.Helper()

	_, err := client.CoreV1().Services("default").Create(c.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "page"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c, err)
}

// address waits until Cilium's operator has given the Service an address that begins so; empty = taken it away.
func (c *ciliumStack) address(client kubernetes.Interface, begin string) {
	c.Helper()

	require.Eventually(c, func() bool {
		found, err := client.CoreV1().Services("default").Get(c.Context(), "page", metav1.GetOptions{})
		require.NoError(c, err)

		given := found.Status.LoadBalancer.Ingress

		return begin == "" && len(given) == 0 || begin != "" && len(given) == 1 && strings.HasPrefix(given[0].IP, begin)
	}, within, 100*time.Millisecond, "the address of the Service")
}

// hubble runs with certificates that a job makes, since Helm would make new ones at each rendering.
func (c *ciliumStack) hubble(client kubernetes.Interface) {
	c.Helper()

	file := c.stack("loadBalancer", nil, "hubble", true)
	c.w.up(file)

	for _, name := range []string{"hubble-relay", "hubble-ui"} {
		found, err := client.AppsV1().Deployments("kube-system").Get(c.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.EqualValues(c, 1, found.Status.ReadyReplicas, name)
	}

	secrets := client.CoreV1().Secrets("kube-system")
	certificates, err := secrets.Get(c.Context(), "hubble-relay-client-certs", metav1.GetOptions{})
	require.NoError(c, err)
	assert.Contains(c, certificates.Data, "ca.crt")
	c.w.up(file, optup.ExpectNoChanges())
}

// network asks for the MTU that Cilium was told; empty = none.
func (c *ciliumStack) network(mtu string) {
	c.Helper()

	found, err := c.client().CoreV1().ConfigMaps("kube-system").Get(c.Context(), "cilium-config", metav1.GetOptions{})
	require.NoError(c, err)

	if mtu != "" {
		assert.Equal(c, mtu, found.Data["mtu"])
	}

	nodes, err := c.client().CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)

	for _, n := range nodes.Items {
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				assert.Equal(c, corev1.ConditionTrue, condition.Status, n.Name)
			}
		}
	}
}
