package spec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

// TestCNI: its values can be secret, and its version depends on that of Kubernetes. TestGoldenPlans covers the plan.
func TestCNI(t *testing.T) {
	t.Parallel()

	set := map[string]any{"clusters[0].cni": map[string]any{
		"kind":   "cilium",
		"values": map[string]any{"operator": map[string]any{"replicas": 3}, "list": []any{true}, "key": "hunter2"},
	}}
	o := options()
	o.Encrypted = map[string]string{"clusters": changed(t, withCiphertext(set))["clusters"]}
	plan, err := spec.Load(changed(t, set), o)
	require.NoError(t, err)
	assert.True(t, plan.Clusters[0].CNI.Secret)

	// Cilium tests no version on v1.37, and none on v1.29.
	plan, err = spec.Load(changed(t, map[string]any{
		"clusters[0].cni": map[string]any{"kind": "cilium"}, "templates.talos.version": "v1.14.4",
		"clusters[0].kubernetesVersion": "v1.37.2",
	}), options())
	require.NoError(t, err)
	assert.Contains(t, strings.Join(plan.Warnings, "\n"), "clusters[0].cni.version: Cilium tests 1.20.2 on Kubernetes v1.33 to v1.36")

	_, err = spec.Load(changed(t, map[string]any{
		"clusters[0].cni": map[string]any{"kind": "cilium"}, "clusters[0].kubernetesVersion": "v1.29.0",
	}), spec.Options{Stack: "test"})
	require.ErrorContains(t, err, "clusters[0].cni.version: is missing, and no version is known to support Kubernetes v1.29.0")
}

// withCiphertext returns the configuration as in the stack's file.
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
