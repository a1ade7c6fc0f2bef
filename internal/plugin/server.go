// Package plugin serves the components to programs in other languages, as a Pulumi provider of remote components: the
// engine requests a component, and the plugin registers its resources with the engine.
package plugin

import (
	"context"
	"fmt"

	provider "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	host "github.com/pulumi/pulumi/sdk/v3/go/pulumi/provider"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// Run serves the components, with their schema, until the engine that started the process disconnects.
func Run(schema string) error {
	return host.Main(Name, func(client *host.HostClient) (pulumirpc.ResourceProviderServer, error) {
		return newServer(schema, client)
	})
}

// server constructs components directly with the SDK: pulumi-go-provider loses the aliases of a component and registers
// its outputs a second time, which the engine rejects.
type server struct {
	pulumirpc.ResourceProviderServer

	client     *host.HostClient
	components map[string]component
}

func newServer(schema string, client *host.HostClient) (*server, error) {
	inner, err := provider.RawServer(Name, Version, provider.Provider{
		GetSchema: func(context.Context, provider.GetSchemaRequest) (provider.GetSchemaResponse, error) {
			return provider.GetSchemaResponse{Schema: schema}, nil
		},
		Cancel: func(context.Context) error { return nil },
	})(client)
	if err != nil {
		return nil, fmt.Errorf("unable to serve the components: %w", err)
	}

	s := &server{ResourceProviderServer: inner, client: client, components: map[string]component{}}
	for _, c := range servedComponents() {
		s.components[c.token] = c
	}

	return s, nil
}

// marshalOptions are those of the SDK for components.
var marshalOptions = plugin.MarshalOptions{ //nolint:gochecknoglobals // a constant
	KeepUnknowns: true, KeepSecrets: true, KeepResources: true, KeepOutputValues: true,
}

// Construct creates a component.
func (s *server) Construct(
	ctx context.Context, request *pulumirpc.ConstructRequest,
) (*pulumirpc.ConstructResponse, error) {
	c, ok := s.components[request.GetType()]
	if !ok {
		return nil, fmt.Errorf("package %s has no component %s", Name, request.GetType())
	}

	inputs, err := plugin.UnmarshalProperties(request.GetInputs(), marshalOptions)
	if err != nil {
		return nil, fmt.Errorf("unable to read the arguments of %s %q: %w", c.output.Name(), request.GetName(), err)
	}

	inputs, texts, err := checkInputs(inputs, c.arguments)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", c.output.Name(), request.GetName(), err)
	}

	if request.Inputs, err = plugin.MarshalProperties(inputs, marshalOptions); err != nil {
		return nil, fmt.Errorf("unable to pass on the arguments of %s %q: %w", c.output.Name(), request.GetName(), err)
	}

	return host.Construct(ctx, request, s.client.EngineConn(), func(
		ctx *pulumi.Context, _, name string, inputs host.ConstructInputs, opts pulumi.ResourceOption,
	) (*host.ConstructResult, error) {
		created, err := c.newComponent(ctx, name, inputs, texts, opts)
		if err != nil {
			return nil, err
		}

		return host.NewConstructResult(created)
	})
}
