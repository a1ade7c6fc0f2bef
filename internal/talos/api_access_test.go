package talos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOpensAPIServer: what lets somebody in whom Talos' own settings keep out, also a patch for something else that
// replaces them.
func TestOpensAPIServer(t *testing.T) {
	t.Parallel()

	const (
		doc            = "apiVersion: v1alpha1\nkind: "
		authentication = "KubeAuthenticationConfig.configuration"
	)

	for name, test := range map[string]struct {
		patch string
		want  []string
	}{
		"anonymous requests": {
			"cluster: {apiServer: {extraArgs: {anonymous-auth: true}}}\n", []string{"cluster.apiServer.extraArgs.anonymous-auth"},
		},
		"no anonymous requests": {"cluster: {apiServer: {extraArgs: {anonymous-auth: 'false'}}}\n", nil},
		"old TLS": {
			doc + "KubeAPIServerConfig\nextraArgs: {tls-min-version: VersionTLS11}\n",
			[]string{"KubeAPIServerConfig.extraArgs.tls-min-version"},
		},
		"new TLS":            {"cluster: {apiServer: {extraArgs: {tls-min-version: VersionTLS13}}}\n", nil},
		"anonymous, by path": {doc + "KubeAuthenticationConfig\nconfiguration: {anonymous: {enabled: true, conditions: [{path: /version}]}}\n", []string{authentication}},
		"anonymous, to its health": {
			doc + "KubeAuthenticationConfig\nconfiguration: {anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}}\n", nil,
		},
		"anonymous, without conditions": {
			doc + "KubeAuthenticationConfig\nconfiguration: {anonymous: {enabled: true}}\n", []string{authentication},
		},
		"no anonymous requests, as a document": {
			doc + "KubeAuthenticationConfig\nconfiguration: {anonymous: {enabled: false}}\n", nil,
		},
		"an issuer, without a word about anonymous requests": {
			doc + "KubeAuthenticationConfig\nconfiguration: {jwt: []}\n", []string{authentication},
		},
		"Talos' own removed, which leaves none": {doc + "KubeAuthenticationConfig\n$patch: delete\n", nil},
		"something else":                        {"machine: {sysctls: {a: b}}\n", nil},
	} {
		assert.Equal(t, test.want, OpensAPIServer(test.patch), name)
	}

	// A patch replaces the configuration as a whole, so that what it does not say is Kubernetes' default.
	cluster := testCluster()
	cluster.Patches = []string{doc + "KubeAuthenticationConfig\nconfiguration: {jwt: []}\n"}
	patched := generateConfig(t, cluster, testNode("prod-cp-1", RoleControlPlane, 10), "v1.14").K8sAuthenticationConfig()
	require.NotNil(t, patched)
	assert.NotContains(t, patched.Configuration(), "anonymous")

	for _, contract := range contracts {
		text, err := generateConfig(t, testCluster(), testNode("prod-cp-1", RoleControlPlane, 10), contract).Bytes()
		require.NoError(t, err)
		assert.Empty(t, OpensAPIServer(string(text)), contract)
	}
}
