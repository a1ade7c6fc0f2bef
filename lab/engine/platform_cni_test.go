package engine_test

import (
	"context"
	"encoding/json"
	"maps"
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

// ciliumStack is a stack whose cluster has Cilium, from the chart in its Go module.
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
		T: t, w: w, file: w.stack(1, 1).yaml(t),
		settings: map[string]any{
			"kind": "cilium", "version": "1.20.2", "chart": "oci://" + registry.address + "/charts/cilium", "digest": digest,
			"loadBalancer": map[string]any{
				"addresses": []string{w.network + ".1.200-" + w.network + ".1.210"}, "interfaces": []string{"^eth"},
			},
		},
	}
}

// stack returns the stack file with changed settings, pairs of keys and values; nil removes one.
func (c *ciliumStack) stack(changes ...any) string {
	c.Helper()

	settings := maps.Clone(c.settings)

	for i := 0; i < len(changes); i += 2 {
		key, _ := changes[i].(string)
		settings[key] = changes[i+1]

		if changes[i+1] == nil {
			delete(settings, key)
		}
	}

	text, err := json.Marshal(settings)
	require.NoError(c, err)

	return strings.Replace(c.file, "      network:\n", "      cni: "+string(text)+"\n      network:\n", 1)
}

// releaseRevisions counts the revisions of Helm's release by status.
func releaseRevisions(client kubernetes.Interface) map[string]int {
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

// killedUp runs an up whose installation of the release is killed at a moment.
func (c *ciliumStack) killedUp(file string, reached func(w *world) bool) {
	c.Helper()

	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()

	c.w.when(ctx, reached, func() { c.w.killProgram("talosops", "cni") })

	_, err := c.w.tryUp(ctx, file)
	require.Error(c, err, "the run ended before it was killed: %s", c.w.output())
}

// exists reports whether an object of Cilium's API exists.
func (c *ciliumStack) exists(path string) bool {
	_, err := c.w.kubeClient().CoreV1().RESTClient().Get().AbsPath("/apis/cilium.io/" + path).DoRaw(c.Context())

	return err == nil
}

const (
	ciliumPool      = "v2/ciliumloadbalancerippools/talos-proxmox"
	ciliumL2Policy  = "v2alpha1/ciliuml2announcementpolicies/talos-proxmox"
	ciliumBGP       = "v2/ciliumbgpclusterconfigs/talos-proxmox"
	ciliumBGPConfig = "v2/ciliumbgppeerconfigs/talos-proxmox"
)

// TestPlatformCNI: a cluster gets its network with its first up; killed runs are resumed, and each refusal is one
// message.
func TestPlatformCNI(t *testing.T) {
	t.Parallel()

	c := newCiliumStack(t)
	w := c.w

	var began time.Time

	c.killedUp(c.stack(), func(w *world) bool {
		if began.IsZero() && len(w.processes("talosops", "cni")) > 0 {
			began = time.Now()
		}

		return !began.IsZero() && time.Since(began) > 400*time.Millisecond // in the middle, on most machines
	})
	w.up(c.stack())

	client := c.w.kubeClient()
	assert.Equal(t, 1, releaseRevisions(client)["deployed"])
	assert.Zero(t, releaseRevisions(client)["pending-install"])
	assert.Contains(t, w.output(), "healthy: etcd members: 1; nodes: 2")
	assert.NotContains(t, w.output(), "are not Ready")
	assert.True(t, c.exists(ciliumPool))
	c.createService(client)
	c.waitAddress(client, w.network+".1.2")

	leader, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "cilium-operator-resource-lock",
		metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotNil(t, leader.Spec.HolderIdentity)

	w.up(c.stack(), optup.ExpectNoChanges())

	values := func(mtu int) map[string]any { return map[string]any{"MTU": mtu} }
	c.killedUp(c.stack("values", values(1400)), func(*world) bool { return releaseRevisions(client)["pending-upgrade"] > 0 })
	assert.Equal(t, 1, releaseRevisions(client)["pending-upgrade"])
	c.requireNetwork("")

	output := w.outputOf(func() { w.up(c.stack("values", values(1400))) })
	assert.Contains(t, output, "was pending-upgrade when a run was interrupted: it resumes")
	assert.Equal(t, 1, releaseRevisions(client)["deployed"])
	assert.Zero(t, releaseRevisions(client)["pending-upgrade"])
	c.requireNetwork("1400")

	before := releaseRevisions(client)

	for name, fault := range map[string]struct{ stack, message string }{
		"wrong digest": {
			c.stack("digest", "sha256:"+strings.Repeat("0", 64)), "set the digest of what you trust; nothing was changed",
		},
		"chart unreachable": {
			c.stack("chart", "https://127.0.0.1:9/cilium.tgz"), "connection refused: make sure that this machine can reach it, or set a copy",
		},
		"a value that the chart does not have": {
			c.stack("values", map[string]any{"debug": map[string]any{"enabeld": true}}), "debug.enabeld: write debug.enabled",
		},
		"a value of another type": {
			c.stack("values", map[string]any{"debug": map[string]any{"enabled": "yes"}}), "got string, want boolean",
		},
		"no CNI any more": {c.file, "would leave Cilium, the pod network of cluster one, unmanaged"},
	} {
		assert.Contains(t, w.failedUp(fault.stack), fault.message, name)
	}

	assert.Equal(t, before, releaseRevisions(client), "nothing was changed")
	c.requireNetwork("1400")

	c.requireBGP(client, values(1400))
	w.up(c.stack("values", values(1400))) // by ARP again
	assert.False(t, c.exists(ciliumBGP))
	c.waitAddress(client, w.network+".1.2")
	w.up(c.stack("values", values(1400), "loadBalancer", nil))
	assert.False(t, c.exists(ciliumPool))
	c.waitAddress(client, "")
	c.requireHubble(client)
}

// createService creates a Service of type LoadBalancer.
func (c *ciliumStack) createService(client kubernetes.Interface) {
	c.Helper()

	_, err := client.CoreV1().Services("default").Create(c.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "page"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c, err)
}

// waitAddress waits until Cilium's operator has given the Service an address with this prefix; empty = removed it.
func (c *ciliumStack) waitAddress(client kubernetes.Interface, begin string) {
	c.Helper()

	require.Eventually(c, func() bool {
		found, err := client.CoreV1().Services("default").Get(c.Context(), "page", metav1.GetOptions{})
		require.NoError(c, err)

		ingress := found.Status.LoadBalancer.Ingress

		return begin == "" && len(ingress) == 0 || begin != "" && len(ingress) == 1 && strings.HasPrefix(ingress[0].IP, begin)
	}, within, 100*time.Millisecond, "the address of the Service")
}

// requireBGP changes from announcements by ARP to BGP: Cilium's operator gives the Service an address outside the
// nodes' network, and agents with the new settings replace those that read the old ones. Sessions are opened by agents,
// of which the lab has no real ones.
func (c *ciliumStack) requireBGP(client kubernetes.Interface, values map[string]any) {
	c.Helper()

	checksum := func() string {
		agents, err := client.AppsV1().DaemonSets("kube-system").Get(c.Context(), "cilium", metav1.GetOptions{})
		require.NoError(c, err)

		return agents.Spec.Template.Annotations["cilium.io/cilium-configmap-checksum"]
	}

	require.True(c, c.exists(ciliumL2Policy))

	before := checksum()
	require.NotEmpty(c, before)

	file := c.stack("values", values, "loadBalancer", map[string]any{
		"addresses": []string{c.w.network + ".9.0/28"},
		"bgp": map[string]any{
			"localAsn": 64513, "peers": []map[string]any{{"address": c.w.network + ".1.254", "asn": 64512}},
			"password": "hunter2",
		},
	})
	output := c.w.outputOf(func() { c.w.up(file) })
	assert.NotContains(c, output, "hunter2")
	assert.True(c, c.exists(ciliumBGP))
	assert.True(c, c.exists(ciliumBGPConfig))
	assert.False(c, c.exists(ciliumL2Policy))
	assert.NotEqual(c, before, checksum())
	c.waitAddress(client, c.w.network+".9.")

	secret, err := client.CoreV1().Secrets("kube-system").Get(c.Context(), "talos-proxmox-bgp", metav1.GetOptions{})
	require.NoError(c, err)
	assert.Equal(c, "hunter2", string(secret.Data["password"]))
	c.w.up(file, optup.ExpectNoChanges())
}

// requireHubble checks that Hubble runs with certificates from a job, since Helm would generate new ones at each
// rendering.
func (c *ciliumStack) requireHubble(client kubernetes.Interface) {
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

// requireNetwork checks Cilium's MTU, unless it is empty, and that all nodes are Ready.
func (c *ciliumStack) requireNetwork(mtu string) {
	c.Helper()

	config := c.w.configMapData("kube-system", "cilium-config")
	require.NotEmpty(c, config)

	if mtu != "" {
		assert.Equal(c, mtu, config["mtu"])
	}

	nodes, err := c.w.kubeClient().CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)

	for _, n := range nodes.Items {
		assert.True(c, nodeIsReady(n), n.Name)
	}
}
