package components

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// TestCNI expects the CNI between kubeconfig and gate, and what the preview shows of it.
func TestCNI(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(3, 2)
	assert.NotContains(t, registerTalosCluster(t, cluster).Names(tokens.LocalCommand), "one-cni", "it is not configured")

	cluster.CNI = &CNI{
		LoadBalancer: []AddressRange{{First: netip.MustParseAddr("127.1.1.200"), Last: netip.MustParseAddr("127.1.1.210")}}, GatewayAPI: true, Values: "MTU: 1400",
	}
	commands := registerTalosCluster(t, cluster).ByType(tokens.LocalCommand)
	command, gate := commands["one-cni"], commands["one-healthy"]
	assert.Subset(t, command.DependsOn(), []string{"one-bootstrap", "one-kubeconfig"})
	assert.Contains(t, gate.DependsOn(), "one-cni")
	assert.NotContains(t, gate.ReplaceWith(), "one-cni")
	assert.Regexp(t, `^cilium 1\.20\.2 of https://helm\.cilium\.io/cilium-1\.20\.2\.tgz with values [0-9a-f]{12}$`,
		command.Input("environment").ObjectValue()["FOLLOWS"].StringValue())

	req := enginetest.RequestOf[request.CNI](t, command)
	assert.Equal(t, enginetest.KubeconfigText, req.Kubeconfig)
	assert.Equal(t, "kube-system/cilium", req.Release.Namespace+"/"+req.Release.Name)
	assert.Len(t, req.Release.Manifests, 7)
	assert.Len(t, req.Release.After, 2)
	assert.Len(t, req.Release.Absent, 4, "the objects of BGP")

	var values map[string]any
	require.NoError(t, json.Unmarshal(req.Release.Values, &values))
	assert.InDelta(t, 7445, values["k8sServicePort"], 0)
	assert.InDelta(t, 1400, values["MTU"], 0)

	assert.False(t, command.Input("environment").ObjectValue()["FOLLOWS"].IsSecret())

	cluster.CNI.BGP = &BGP{
		LocalASN: 64513, Peers: []BGPPeer{{Address: netip.MustParseAddr("127.1.1.1"), ASN: 64512}}, Password: "hunter2",
	}
	command = registerTalosCluster(t, cluster).ByType(tokens.LocalCommand)["one-cni"]
	assert.True(t, command.Input("environment").ObjectValue()["FOLLOWS"].IsSecret(), "a digest of a short secret could be guessed")
	assert.Len(t, enginetest.RequestOf[request.CNI](t, command).Release.After, 5)
}

func TestCNIProblems(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(1, 1)
	cluster.CNI = &CNI{
		Version: "1.18.12", Values: "k8sServicePort: 6443", LoadBalancer: []AddressRange{{Last: netip.MustParseAddr("127.1.1.9")}},
		BGP: &BGP{LocalASN: 1 << 32, Peers: []BGPPeer{{ASN: 64512}}},
	}
	cluster.Patches = []string{"cluster: {network: {cni: {name: flannel}}, proxy: {disabled: false}}"}

	unused := cluster
	unused.CNI = &CNI{BGP: &BGP{
		LocalASN: 64513, Peers: []BGPPeer{{Address: netip.MustParseAddr("127.1.1.1"), ASN: 64512}},
	}}
	_, err := unused.Validated("one")
	require.ErrorContains(t, err, "cni.bgp: is set without addresses to announce; set cni.loadBalancer, or remove it")

	_, err = cluster.Validated("one")
	for _, problem := range []string{
		`cni.version: "1.18.12" is tested by Cilium on Kubernetes v1.30 to v1.33, not on v1.35.0; set 1.20.2`,
		"cni.values.k8sServicePort: is set by the program, because KubePrism has port 7445; remove it",
		"cni.loadBalancer[0].first: is missing; set the first address, such as 10.0.0.200",
		"cni.bgp.localAsn: 4294967296 is not an autonomous system number; use one between 1 and 4294967295",
		"cni.bgp.peers[0].address: is missing; set the router's address, such as 10.0.0.1",
		"patches[0]: it changes cluster.network.cni, cluster.proxy, which Cilium stands in for; remove it, or cni",
	} {
		require.ErrorContains(t, err, problem)
	}
}
