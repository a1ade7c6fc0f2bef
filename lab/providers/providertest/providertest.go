// Package providertest calls a provider as the engine does, for the tests of the stand-ins.
package providertest

import (
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
