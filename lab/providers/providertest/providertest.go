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

// URN returns the URN of a test's only resource of a type.
func URN(typ tokens.Type) resource.URN { return resource.NewURN("lab", "project", "", typ, "it") }

// Inputs converts plain values and property values to inputs.
func Inputs(pairs map[string]any) property.Map {
	asIs := func(v any) (resource.PropertyValue, bool) {
		value, ok := v.(property.Value)

		return resource.ToResourcePropertyValue(value), ok
	}

	return resource.FromResourcePropertyMap(resource.NewPropertyMapFromMapRepl(pairs, nil, asIs))
}

// Check returns the inputs that the provider completes. It fails the test if the provider refuses any.
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

// Registered returns the inputs of a stack's resources by "type name", from a golden file of package stacks. Values
// that are unknown or secret there are unknown.
func Registered(t *testing.T, file string) map[string]property.Map {
	t.Helper()

	text, err := os.ReadFile(file) //nolint:gosec // a file of the repository
	require.NoError(t, err)

	var all map[string]struct{ Inputs map[string]any }
	require.NoError(t, json.Unmarshal(text, &all))

	found := map[string]property.Map{}
	for name, registered := range all {
		found[name] = Inputs(withUnknowns(registered.Inputs).(map[string]any))
	}

	return found
}

// withUnknowns replaces what a golden file has for unknown and secret values by unknown values.
func withUnknowns(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if _, secret := v["secret"]; secret && len(v) == 1 {
			return property.New(property.Computed)
		}

		for name := range v {
			v[name] = withUnknowns(v[name])
		}
	case []any:
		for i := range v {
			v[i] = withUnknowns(v[i])
		}
	case string:
		if v == "(unknown)" {
			return property.New(property.Computed)
		}
	}

	return v
}
