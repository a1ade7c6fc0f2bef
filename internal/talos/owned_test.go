package talos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPatchesMustNotChangeOwnedPaths(t *testing.T) {
	t.Parallel()

	const secret = " (generated once, with the cluster's secrets)"
	for name, test := range map[string]struct{ patch, says string }{
		"the authority of Kubernetes": {
			"cluster: {ca: {crt: aGlkZGVu, key: aGlkZGVu}}", "it changes cluster.ca" + secret + ": remove it",
		},
		"the authority of Talos": {
			"machine: {ca: {crt: aGlkZGVu, key: aGlkZGVu}}", "it changes machine.ca" + secret + ": remove it",
		},
		"the authority of etcd": {
			"cluster: {etcd: {ca: {crt: aGlkZGVu, key: aGlkZGVu}}}", "it changes cluster.etcd.ca" + secret + ": remove it",
		},
		"several": {
			"machine: {token: hidden}\ncluster: {id: hidden, secret: hidden}",
			"it changes cluster.id" + secret + ", cluster.secret" + secret + ", machine.token" + secret + ": remove them",
		},
		"the key of service accounts": {"cluster: {serviceAccount: {key: aGlkZGVu}}", "cluster.serviceAccount"},
		"the aggregator's authority":  {"cluster: {aggregatorCA: {crt: aGlkZGVu, key: aGlkZGVu}}", "cluster.aggregatorCA"},
		"the key of secrets":          {"cluster: {secretboxEncryptionSecret: hidden}", "cluster.secretboxEncryptionSecret"},
		"the older key of secrets":    {"cluster: {aescbcEncryptionSecret: hidden}", "cluster.aescbcEncryptionSecret"},
		"the endpoint": {
			"cluster: {controlPlane: {endpoint: 'https://10.9.9.9:6443'}}",
			"it changes cluster.controlPlane.endpoint (the cluster's endpoint, network.vip or first control plane): remove it",
		},
		"the role": {"machine: {type: worker}", "it changes machine.type (the role of its pool): remove it"},
		"the name": {
			"machine: {network: {hostname: other}}", "it changes machine.network.hostname (the machine's name): remove it",
		},
		"pods": {
			"cluster: {network: {podSubnets: [10.42.0.0/16]}}",
			"it changes cluster.network.podSubnets (the cluster's podCidr and podCidrIPv6): remove it",
		},
		"services in a second document": {
			"machine: {sysctls: {a: b}}\n---\ncluster: {network: {serviceSubnets: [10.43.0.0/16]}}\n",
			"it changes cluster.network.serviceSubnets (the cluster's serviceCidr and serviceCidrIPv6): remove it",
		},
		"an authority's removal": {
			"cluster: {ca: {$patch: delete}}", "it changes cluster.ca" + secret + ": remove it",
		},
		"removal of what an owned is in": {
			"cluster: {etcd: {$patch: delete}}", "it changes cluster.etcd.ca" + secret + ": remove it",
		},
		"in JSON": {`{"cluster": {"token": "hidden"}}`, "it changes cluster.token"},
		"by an alias": {
			"machine: {token: &x hidden}\ncluster: {token: *x}", "it changes cluster.token" + secret + ", machine.token",
		},

		"a port of the API server": {
			"cluster: {controlPlane: {localAPIServerPort: 6444}}", "it changes cluster.controlPlane.localAPIServerPort (6443, where",
		},
		"a port of the API server, as a document": {
			"apiVersion: v1alpha1\nkind: KubeAPIServerConfig\napiPort: 6444", "it changes KubeAPIServerConfig.apiPort (6443, where",
		},
		"further names of certificates": {
			"machine: {certSANs: [a.example.org]}\ncluster: {apiServer: {certSANs: [b.example.org]}}", "",
		},
		"further accepted issuers of tokens": {"apiVersion: v1alpha1\nkind: KubeServiceAccountConfig\n" +
			"accepted: {issuers: ['https://10.0.0.5:6443'], audiences: ['https://a:6443', 'https://10.0.0.5:6443']}", ""},
		"further accepted authorities":    {"machine: {acceptedCAs: []}\ncluster: {acceptedCAs: []}", ""},
		"a CNI and the domain":            {"cluster: {network: {cni: {name: flannel}, dnsDomain: example.org}}", ""},
		"arguments of etcd":               {"cluster: {etcd: {extraArgs: {election-timeout: '5000'}}}", ""},
		"cards, registries, another disk": {"machine: {network: {nameservers: [1.1.1.1]}, install: {disk: /dev/vda}, registries: {mirrors: {docker.io: {endpoints: ['https://m']}}}}", ""},
		"removal of something else":       {"cluster: {proxy: {$patch: delete}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireOwned(t, test.patch, test.says)
		})
	}
}

// requireOwned requires that a patch is refused with a text, and without what it sets; empty = that it is accepted.
func requireOwned(t *testing.T, patch, says string) {
	t.Helper()

	_, err := SplitPatch(patch)
	if says == "" {
		require.NoError(t, err)

		return
	}

	var owned *OwnedError
	require.ErrorAs(t, err, &owned)
	require.ErrorContains(t, owned, says)
	assert.NotContains(t, owned.Error(), "hidden")
	assert.NotContains(t, owned.Error(), "aGlkZGVu")
}

// TestPatchesMustNotChangeOwnedDocuments: what contracts from 1.14 on have in documents of their own.
func TestPatchesMustNotChangeOwnedDocuments(t *testing.T) {
	t.Parallel()

	const secret = " (generated once, with the cluster's secrets)"
	for text, says := range map[string]string{
		"HostnameConfig\nauto: stable":                                      "it changes HostnameConfig (the machine's name): remove it",
		"DiscoveryIdentityConfig\nclusterID: hidden\nclusterSecret: hidden": "it changes DiscoveryIdentityConfig" + secret + ": remove it",
		"KubeAPIServerCAConfig\n$patch: delete":                             "it changes KubeAPIServerCAConfig.issuingCA" + secret + ": remove it",
		"KubeEtcdEncryptionConfig\nconfig: {}":                              "it changes KubeEtcdEncryptionConfig" + secret + ": remove it",
		"KubeClusterConfig\nendpoint: https://10.9.9.9:6443":                "it changes KubeClusterConfig.endpoint (the cluster's endpoint, network.vip or first control plane): remove it",
		"KubeNetworkConfig\npodSubnets: [10.42.0.0/16]":                     "it changes KubeNetworkConfig.podSubnets (the cluster's podCidr and podCidrIPv6): remove it",
		"KubeNodeConfig\n$patch: delete":                                    "it changes KubeNodeConfig.$patch (the node's address, labels and taints): remove it",

		"KubeNodeConfig\nlabels: {a: b}":                       "",
		"KubeNetworkConfig\ndnsDomain: example.org":            "",
		"KubeAPIServerCAConfig\nacceptedCAs: []":               "",
		"KubeletConfig\n$patch: delete":                        "",
		"KmsgLogConfig\nname: remote\nurl: udp://10.0.0.5:514": "",
		"KmsgLogConfig\nname: remote\n$patch: delete":          "",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			requireOwned(t, "apiVersion: v1alpha1\nkind: "+text+"\n", says)
		})
	}
}
