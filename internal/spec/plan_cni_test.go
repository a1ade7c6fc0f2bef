package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

// catalogue knows two versions of a chart, and one value that is wrong.
type catalogue struct{}

func (catalogue) DefaultVersion(kubernetes string) string {
	if strings.HasPrefix(kubernetes, "v1.35.") {
		return "1.19.6"
	}

	return ""
}

func (c catalogue) Check(version, kubernetes string) error {
	if c.DefaultVersion(kubernetes) != version && c.Known(version) {
		return fmt.Errorf("does not run on %s; set 1.19.6", kubernetes)
	}

	return nil
}

func (catalogue) Untested(version, _ string) string {
	if version == "1.99.0" {
		return "nobody tests 1.99.0"
	}

	return ""
}

func (catalogue) Known(version string) bool { return version == "1.19.6" || version == "1.18.12" }

func (catalogue) CheckValues(values map[string]any) map[string]string {
	if values["bad"] == nil {
		return nil
	}

	return map[string]string{"bad": "is of no use; remove it"}
}

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
	assert.Equal(t, "1.19.6", cni.Version)
	assert.True(t, cni.Hubble && cni.GatewayAPI && !cni.Secret)
	assert.Equal(t, "/srv/crds", cni.GatewayAPISource)
	assert.Equal(t, []string{"^ens"}, cni.Interfaces)
	assert.Equal(t, "map[key:hunter2 list:[true] operator:map[replicas:3]]", fmt.Sprint(cni.Values))

	var ranges []string
	for _, r := range cni.LoadBalancer {
		ranges = append(ranges, r.First.String()+"-"+r.Last.String())
	}

	assert.Equal(t, []string{"10.0.0.240-10.0.0.247", "10.0.0.200-10.0.0.201", "10.0.0.250-10.0.0.250"}, ranges)

	o := options()
	o.Encrypted = map[string]string{"clusters": changed(t, withCiphertext(set))["clusters"]}
	plan, err = spec.Load(changed(t, set), o)
	require.NoError(t, err)
	assert.True(t, plan.Clusters[0].CNI.Secret)
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
