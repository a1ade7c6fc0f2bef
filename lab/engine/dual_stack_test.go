package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDualStack: nodes with addresses of both families, static and beside DHCP. The lab's machines have the IPv6
// addresses, but its computer does not: everything is reached by IPv4. Another IPv6 network restarts the machines; no
// IPv6 network is refused.
func TestDualStack(t *testing.T) {
	t.Parallel()

	const network = "fd00:1::/64"

	w := newWorld(t, testSpeed)
	s := w.stack(3, 1)
	s.Clusters[0].YAML = "podCidrIPv6: fd00:10:42::/56"
	s.Clusters[0].WorkerYAML = `nodes: {"1": {addressIPv6: "fd00:1::beef"}}`
	file := func(ipv6 string) string {
		return strings.Replace(s.yaml(t), "bridge: vmbr0\n", "bridge: vmbr0\n        ipv6: "+ipv6+"\n", 1)
	}
	first := file(`{cidr: "` + network + `", gateway: "fe80::1"}`)

	w.up(first)
	w.requireMembers(3)
	assert.Equal(t, map[string][]string{
		"one-cp-1":      {w.network + ".1.10", "fd00:1::a"},
		"one-cp-2":      {w.network + ".1.11", "fd00:1::b"},
		"one-cp-3":      {w.network + ".1.12", "fd00:1::c"},
		"one-general-1": {w.network + ".1.20", "fd00:1::beef"},
	}, w.nodeAddresses())
	assert.ElementsMatch(t, []string{
		"ip=" + w.network + ".1.10/24", "gw=" + w.network + ".1.1", "ip6=fd00:1::a/64", "gw6=fe80::1",
	}, strings.Split(w.vm("one-cp-1").Config["ipconfig0"], ","))

	w.up(first, optup.ExpectNoChanges())

	_, status := w.clusterStatus()
	assert.Zero(t, status)

	single := s
	single.Clusters = []cluster{clusterOne(3, 1)}
	_, err := w.preview(single.yaml(t))
	require.ErrorContains(t, err, "clusters[0].network.ipv6: is missing, and cluster one was created with it")

	booted := w.bootTimes()
	moved := file(`{cidr: "fd00:2::/64", gateway: "fe80::1"}`)
	moved = strings.Replace(moved, "fd00:1::beef", "fd00:2::beef", 1)
	assert.Contains(t, w.previewOutput(moved), "IPv6 address fd00:1::a/64 → fd00:2::a/64")
	w.up(moved)
	assert.NotEqual(t, booted, w.bootTimes())
	assert.Equal(t, []string{w.network + ".1.20", "fd00:2::beef"}, w.nodeAddresses()["one-general-1"])
	w.up(moved, optup.ExpectNoChanges())
	w.requireMembers(3)
}

// nodeAddresses returns the internal addresses of the nodes, in their order.
func (w *world) nodeAddresses() map[string][]string {
	w.t.Helper()

	list, err := w.kubeClient().CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)

	addresses := map[string][]string{}

	for _, n := range list.Items {
		for _, address := range n.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				addresses[n.Name] = append(addresses[n.Name], address.Address)
			}
		}
	}

	return addresses
}

// TestRealDualStack: Kubernetes itself gives each node a network for pods of each family, and a Service that asks for
// both an address of each.
func TestRealDualStack(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := w.stack(1, 1)
	s.Clusters[0].VIP = 0
	file := strings.Replace(s.yaml(t), "bridge: vmbr0\n", "bridge: vmbr0\n        ipv6: {cidr: \"fd00:1::/64\"}\n", 1)
	w.up(file)
	assert.Equal(t, map[string][]string{
		"one-cp-1": {w.network + ".1.10", "fd00:1::a"}, "one-general-1": {w.network + ".1.20", "fd00:1::14"},
	}, w.nodeAddresses())

	client := w.kubeClient().CoreV1()

	for _, name := range []string{"one-cp-1", "one-general-1"} {
		var node *corev1.Node

		require.Eventually(t, func() bool {
			var err error

			node, err = client.Nodes().Get(t.Context(), name, metav1.GetOptions{})

			return err == nil && len(node.Spec.PodCIDRs) > 0
		}, time.Minute, time.Second, name)
		require.Len(t, node.Spec.PodCIDRs, 2, name)
		assert.True(t, strings.HasPrefix(node.Spec.PodCIDRs[0], "10.244."), node.Spec.PodCIDRs[0])
		assert.True(t, strings.HasPrefix(node.Spec.PodCIDRs[1], "fd00:10:244:"), node.Spec.PodCIDRs[1])
	}

	both := corev1.IPFamilyPolicyRequireDualStack
	service, err := client.Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{IPFamilyPolicy: &both, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, service.Spec.IPFamilies)

	w.up(file, optup.ExpectNoChanges())
}
