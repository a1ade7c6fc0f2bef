package plugin

import (
	"reflect"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components"
)

// clusterInputs returns a cluster's arguments as programs in other languages pass them.
func clusterInputs(node map[string]any) map[string]any {
	all := map[string]any{
		"name": "one-cp-1", "role": "controlplane", "address": "10.0.0.10/24",
		"talos":   map[string]any{"version": "v1.12.6"},
		"machine": map[string]any{"node": "pve1", "vmid": 2000, "mac": "02:00:00:00:0a:00"},
	}
	for key, value := range node {
		all[key] = value
	}

	return map[string]any{"network": map[string]any{"cidr": "10.0.0.0/24"}, "nodes": []any{all}}
}

func output(value any, known, secret bool, from ...resource.URN) resource.PropertyValue {
	return resource.NewProperty(resource.Output{
		Element: resource.NewPropertyValue(value), Known: known, Secret: secret, Dependencies: from,
	})
}

func TestCheckInputs(t *testing.T) {
	t.Parallel()

	const urn = resource.URN("urn:pulumi:s::p::t::n")

	for name, test := range map[string]struct {
		node map[string]any
		says string
	}{
		"nothing": {},
		"an output for an input": {
			node: map[string]any{"machine": map[string]any{"node": "pve1", "template": output(901.0, false, false, urn)}},
		},
		"a known output":                     {node: map[string]any{"name": output("one-cp-1", true, false)}},
		"an unknown input":                   {map[string]any{"size": 1}, "nodes[0].size: there is no such input; choose one of name, role"},
		"a number for a text":                {map[string]any{"name": 5}, "nodes[0].name: is of type number; use a text"},
		"half a number":                      {map[string]any{"timeSlicing": 1.5}, "nodes[0].timeSlicing: is of type number; use a whole number"},
		"a text for a boolean":               {map[string]any{"dedicated": "yes"}, "nodes[0].dedicated: is of type string; use true or false"},
		"a text for a list":                  {map[string]any{"patches": "a"}, "nodes[0].patches: is of type string; use a list"},
		"a text for an object":               {map[string]any{"machine": "a"}, "nodes[0].machine: is of type string; use an object"},
		"an unknown value":                   {map[string]any{"name": output("", false, false, urn)}, "nodes[0].name: is not known before another resource is created"},
		"a value of another resource":        {map[string]any{"name": output("a", true, false, urn)}, "nodes[0].name: is an output of another resource"},
		"a secret that would not remain one": {map[string]any{"name": resource.MakeSecret(resource.NewProperty("hidden"))}, "nodes[0].name: is a secret"},
		"a value deep inside":                {map[string]any{"labels": map[string]any{"a": 1}}, "nodes[0].labels.a: is of type number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			inputs := resource.NewPropertyMapFromMap(clusterInputs(test.node))

			checked, err := checkInputs(inputs, reflect.TypeFor[components.TalosClusterArgs]())
			if test.says == "" {
				require.NoError(t, err)
				assert.Len(t, checked, len(inputs))

				return
			}

			require.ErrorContains(t, err, test.says)
			assert.NotContains(t, err.Error(), "hidden")
			assert.Equal(t, 1, strings.Count(err.Error(), "\n")+1)
		})
	}

	_, err := checkInputs(
		resource.NewPropertyMapFromMap(clusterInputs(map[string]any{"name": 5, "role": true, "other": 1})),
		reflect.TypeFor[components.TalosClusterArgs](),
	)
	assert.Equal(t, 3, strings.Count(err.Error(), "\n")+1, "all problems at once")
}

func TestSecretPatchesRemainSecret(t *testing.T) {
	t.Parallel()

	for name, patches := range map[string]any{
		"a list of secrets":  []any{resource.MakeSecret(resource.NewProperty("a"))},
		"a secret list":      resource.MakeSecret(resource.NewPropertyValue([]any{"a"})),
		"an output's secret": output([]any{"a"}, true, true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			inputs := resource.NewPropertyMapFromMap(clusterInputs(map[string]any{"patches": patches, "secret": false}))

			checked, err := checkInputs(inputs, reflect.TypeFor[components.TalosClusterArgs]())
			require.NoError(t, err)

			node := checked["nodes"].ArrayValue()[0].ObjectValue()
			assert.Equal(t, []any{"a"}, node["patches"].Mappable())
			assert.True(t, node["secret"].BoolValue())
		})
	}
}
