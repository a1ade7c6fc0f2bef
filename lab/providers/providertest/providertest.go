// Package providertest calls a provider as the engine does, for the tests of the stand-ins.
package providertest

import (
	"encoding/json"
	"os"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/require"
)

// URN is that of the only resource of a type.
func URN(typ tokens.Type) resource.URN { return resource.NewURN("lab", "project", "", typ, "it") }

// Inputs are properties of plain values and of values as they are.
func Inputs(pairs map[string]any) property.Map {
	asIs := func(v any) (resource.PropertyValue, bool) {
		value, ok := v.(property.Value)

		return resource.ToResourcePropertyValue(value), ok
	}

	return resource.FromResourcePropertyMap(resource.NewPropertyMapFromMapRepl(pairs, nil, asIs))
}

// Check returns the inputs of a resource as the provider completes them; it must refuse none.
func Check(t *testing.T, s integration.Server, typ tokens.Type, in property.Map) property.Map {
	t.Helper()

	checked, err := s.Check(p.CheckRequest{Urn: URN(typ), Inputs: in})
	require.NoError(t, err)
	require.Empty(t, checked.Failures)

	return checked.Inputs
}

// Create checks and creates a resource.
func Create(t *testing.T, s integration.Server, typ tokens.Type, in property.Map) (p.CreateResponse, error) {
	t.Helper()

	return s.Create(p.CreateRequest{Urn: URN(typ), Properties: Check(t, s, typ, in)})
}

// Registered are the inputs of what a stack registers by "type name", from a golden file of package stacks. What is
// unknown or secret there is unknown.
func Registered(t *testing.T, file string) map[string]property.Map {
	t.Helper()

	text, err := os.ReadFile(file) //nolint:gosec // a file of the repository
	require.NoError(t, err)

	var all map[string]struct{ Inputs map[string]any }
	require.NoError(t, json.Unmarshal(text, &all))

	found := map[string]property.Map{}
	for name, registered := range all {
		found[name] = Inputs(hidden(registered.Inputs).(map[string]any))
	}

	return found
}

// hidden puts unknown values where a golden file says that there is one, or has a secret's digest.
func hidden(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if _, secret := v["secret"]; secret && len(v) == 1 {
			return property.New(property.Computed)
		}

		for name := range v {
			v[name] = hidden(v[name])
		}
	case []any:
		for i := range v {
			v[i] = hidden(v[i])
		}
	case string:
		if v == "(unknown)" {
			return property.New(property.Computed)
		}
	}

	return v
}
