package spec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

// TestCNI plans what brings the network of pods: nobody by default.
func TestCNI(t *testing.T) {
	t.Parallel()

	plan, err := spec.Load(changed(t, nil), options())
	require.NoError(t, err)
	assert.Nil(t, plan.Clusters[0].CNI)

	set := map[string]any{"clusters[0].cni": map[string]any{
		"kind": "cilium", "hubble": true, "gatewayApi": true, "gatewayApiSource": "/srv/crds",
		"values":       map[string]any{"operator": map[string]any{"replicas": 3}, "list": []any{true}, "key": "hunter2"},
		"loadBalancer": map[string]any{"addresses": []any{"10.0.0.240/29", "10.0.0.200 - 10.0.0.201", "10.0.0.250"}, "interfaces": []any{"^ens"}},
	}}

	plan, err = spec.Load(changed(t, set), options())
	require.NoError(t, err)

	cni := plan.Clusters[0].CNI
	assert.Equal(t, "1.20.2", cni.Version)
	assert.True(t, cni.Hubble && cni.GatewayAPI && !cni.Secret)
	assert.Equal(t, "/srv/crds", cni.GatewayAPISource)
	assert.Equal(t, []string{"^ens"}, cni.Interfaces)
	assert.Equal(t, `{"key":"hunter2","list":[true],"operator":{"replicas":3}}`, cni.Values)

	var ranges []string
	for _, r := range cni.LoadBalancer {
		ranges = append(ranges, r.First+"-"+r.Last)
	}

	assert.Equal(t, []string{"10.0.0.240-10.0.0.247", "10.0.0.200-10.0.0.201", "10.0.0.250-10.0.0.250"}, ranges)

	o := options()
	o.Encrypted = map[string]string{"clusters": changed(t, withCiphertext(set))["clusters"]}
	plan, err = spec.Load(changed(t, set), o)
	require.NoError(t, err)
	assert.True(t, plan.Clusters[0].CNI.Secret)

	// Cilium tests no version on the first, and none as old as the second.
	plan, err = spec.Load(changed(t, map[string]any{
		"clusters[0].cni": map[string]any{"kind": "cilium"}, "templates.talos.version": "v1.14.4",
		"clusters[0].kubernetesVersion": "v1.37.2",
	}), options())
	require.NoError(t, err)
	assert.Contains(t, strings.Join(plan.Warnings, "\n"), "clusters[0].cni.version: Cilium tests 1.20.2 on Kubernetes v1.33 to v1.36")

	_, err = spec.Load(changed(t, map[string]any{
		"clusters[0].cni": map[string]any{"kind": "cilium"}, "clusters[0].kubernetesVersion": "v1.29.0",
	}), spec.Options{Stack: "test"})
	require.ErrorContains(t, err, "clusters[0].cni.version: is missing, and no version is known that runs on Kubernetes v1.29.0")
}

// withCiphertext is the configuration as the stack's file has it.
func withCiphertext(set map[string]any) map[string]any {
	cni := map[string]any{}
	for key, value := range set["clusters[0].cni"].(map[string]any) {
		cni[key] = value
	}

	cni["values"] = map[string]any{
		"operator": map[string]any{"replicas": 3}, "list": []any{true}, "key": map[string]any{"secure": "AAAB"},
	}

	return map[string]any{"clusters[0].cni": cni}
}
