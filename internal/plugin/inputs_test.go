package plugin

import (
	"net/netip"
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
		"machine": map[string]any{"host": "pve1", "vmid": 2000, "mac": "02:00:00:00:0a:00"},
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
			node: map[string]any{"machine": map[string]any{"host": "pve1", "template": output(901.0, false, false, urn)}},
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
		"no address":                         {map[string]any{"address": "10.0.0.10"}, `nodes[0].address: "10.0.0.10" is not an address or network with its prefix`},
		"a number for an address":            {map[string]any{"network": map[string]any{"gateway": 5}}, "nodes[0].network.gateway: is of type number; use a text"},
		"a name for an address":              {map[string]any{"network": map[string]any{"dns": []any{"1.1.1.1", "router"}}}, `nodes[0].network.dns[1]: "router" is not an IP address`},
		"a value deep inside":                {map[string]any{"labels": map[string]any{"a": 1}}, "nodes[0].labels.a: is of type number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			inputs := resource.NewPropertyMapFromMap(clusterInputs(test.node))

			checked, _, err := checkInputs(inputs, reflect.TypeFor[components.TalosClusterArgs]())
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

	_, _, err := checkInputs(
		resource.NewPropertyMapFromMap(clusterInputs(map[string]any{"name": 5, "role": true, "other": 1})),
		reflect.TypeFor[components.TalosClusterArgs](),
	)
	assert.Equal(t, 3, strings.Count(err.Error(), "\n")+1, "all problems at once")
}

// TestTextsAreParsed: the SDK reads everything but addresses and networks.
func TestTextsAreParsed(t *testing.T) {
	t.Parallel()

	inputs := resource.NewPropertyMapFromMap(clusterInputs(map[string]any{
		"network": map[string]any{"cidr": output("10.0.1.0/24", true, false), "dns": []any{"1.1.1.1", "8.8.8.8"}},
	}))

	checked, texts, err := checkInputs(inputs, reflect.TypeFor[components.TalosClusterArgs]())
	require.NoError(t, err)
	assert.True(t, checked["network"].ObjectValue()["cidr"].IsNull(), "the SDK cannot read it")

	args := components.TalosClusterArgs{Nodes: []components.ClusterNode{{
		Network: &components.Network{DNS: make([]netip.Addr, 2)},
	}}}
	require.NoError(t, texts.parseInto("", reflect.ValueOf(&args).Elem()))

	node := args.Nodes[0]
	assert.Equal(t, "10.0.0.0/24", args.Network.CIDR.String())
	assert.Equal(t, "10.0.0.10/24", node.Address.String())
	assert.Equal(t, "10.0.1.0/24", node.Network.CIDR.String())
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("8.8.8.8")}, node.Network.DNS)
	assert.False(t, node.Network.Gateway.IsValid(), "not set")
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

			checked, _, err := checkInputs(inputs, reflect.TypeFor[components.TalosClusterArgs]())
			require.NoError(t, err)

			node := checked["nodes"].ArrayValue()[0].ObjectValue()
			assert.Equal(t, []any{"a"}, node["patches"].Mappable())
			assert.True(t, node["secret"].BoolValue())
		})
	}
}
