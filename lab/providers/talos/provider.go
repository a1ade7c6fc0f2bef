// Package talos is a stand-in for the published Pulumi provider for Talos Linux. It has the same resources,
// properties, defaults, replace rules and calls, as far as this program uses them.
package talos

import (
	"context"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/property"

	known "talos-proxmox/internal/talos"
)

// Types of resources with rules beyond "a changed input is an update".
const (
	secretsType    tokens.Type = "talos:machine/secrets:Secrets" //nolint:gosec // a type
	kubeconfigType tokens.Type = "talos:cluster/kubeconfig:Kubeconfig"
)

// settings are the provider's configuration.
type settings struct {
	ImageFactoryURL *string `pulumi:"imageFactoryUrl,optional"`
}

func (s settings) factoryURL() string {
	if s.ImageFactoryURL == nil || *s.ImageFactoryURL == "" {
		return known.DefaultFactoryURL
	}

	return *s.ImageFactoryURL
}

// Provider returns a new instance of the provider. serviceAccountKey is the RSA key in PEM of new clusters' service
// accounts, with a contract since 1.7; empty = each cluster generates its own.
func Provider(serviceAccountKey []byte) p.Provider { return newProvider(time.Now, serviceAccountKey) }

func newProvider(now func() time.Time, serviceAccountKey []byte) p.Provider {
	provider := infer.Provider(infer.Options{
		Config: infer.Config(settings{}),
		Resources: []infer.InferredResource{
			infer.Resource(&secretsResource{now: now, serviceAccountKey: serviceAccountKey}),
			infer.Resource(&kubeconfigResource{now: now}),
			infer.Resource(&schematicResource{}),
		},
		Functions: []infer.InferredFunction{
			infer.Function(&talosConfiguration{}),
		},
	})

	rules := rules{now: now}
	provider.Diff = rules.diff(provider.Diff)
	provider.Update = rules.update(provider.Update)
	provider.Read = keepState(provider.Read)
	provider.Delete = forget(provider.Delete)
	provider.Invoke = addID(provider.Invoke)

	return provider
}

// metaKey is where the published provider keeps the version of a state's format; `talos-proxmox import` sets it.
const metaKey = "__meta"

// applyType is the type of configurations in the states of earlier versions of this program, which only leave them.
const applyType tokens.Type = "talos:machine/configurationApply:ConfigurationApply"

// keepState makes a refresh keep the state of machine secrets and configurations, as in the published provider, which
// reads neither from anywhere.
func keepState(
	next func(context.Context, p.ReadRequest) (p.ReadResponse, error),
) func(context.Context, p.ReadRequest) (p.ReadResponse, error) {
	return func(ctx context.Context, request p.ReadRequest) (p.ReadResponse, error) {
		if kind := request.Urn.Type(); kind == secretsType || kind == applyType {
			return p.ReadResponse{ID: request.ID, Properties: request.Properties, Inputs: request.Inputs}, nil
		}

		return next(ctx, request)
	}
}

// forget makes the deletion of a machine configuration change nothing, as in the published provider.
func forget(next func(context.Context, p.DeleteRequest) error) func(context.Context, p.DeleteRequest) error {
	return func(ctx context.Context, request p.DeleteRequest) error {
		if request.Urn.Type() == applyType {
			return nil
		}

		return next(ctx, request)
	}
}

// addID adds the output id of both functions, the cluster's name: inferred schemas allow no property with this name.
func addID(
	next func(context.Context, p.InvokeRequest) (p.InvokeResponse, error),
) func(context.Context, p.InvokeRequest) (p.InvokeResponse, error) {
	return func(ctx context.Context, request p.InvokeRequest) (p.InvokeResponse, error) {
		response, err := next(ctx, request)
		if err == nil && len(response.Failures) == 0 {
			response.Return = response.Return.Set("id", response.Return.Get("clusterName"))
		}

		return response, err
	}
}

// rules has what inferred resources cannot express: rules that need both the old state and the new inputs, or make
// known outputs unknown.
type rules struct{ now func() time.Time }

func (r rules) diff(
	next func(context.Context, p.DiffRequest) (p.DiffResponse, error),
) func(context.Context, p.DiffRequest) (p.DiffResponse, error) {
	return func(ctx context.Context, request p.DiffRequest) (p.DiffResponse, error) {
		response, err := next(ctx, request)
		if err != nil {
			return response, err
		}

		renewed, err := r.renewedOutputs(request.Urn.Type(), request.State, request.Inputs)
		for _, name := range renewed {
			if response.DetailedDiff == nil {
				response.DetailedDiff = map[string]p.PropertyDiff{}
			}

			response.HasChanges = true
			response.DetailedDiff[name] = p.PropertyDiff{Kind: p.Update}
		}

		return response, err
	}
}

func (r rules) update(
	next func(context.Context, p.UpdateRequest) (p.UpdateResponse, error),
) func(context.Context, p.UpdateRequest) (p.UpdateResponse, error) {
	return func(ctx context.Context, request p.UpdateRequest) (p.UpdateResponse, error) {
		request.State = request.State.Delete(metaKey)

		response, err := next(ctx, request)
		if err != nil || !request.DryRun {
			return response, err
		}

		renewed, err := r.renewedOutputs(request.Urn.Type(), request.State, request.Inputs)
		for _, name := range renewed {
			response.Properties = response.Properties.Set(name, property.New(property.Computed).WithSecret(true))
		}

		return response, err
	}
}

// renewedOutputs returns the outputs that an update renews because a certificate in them expires.
func (r rules) renewedOutputs(typ tokens.Type, state, inputs property.Map) ([]string, error) {
	switch typ {
	case secretsType:
		due, err := expiresBefore(
			stringField(state.Get("clientConfiguration"), "clientCertificate"), r.now().AddDate(0, secretsRenewalMonths, 0),
		)
		if due {
			return []string{"clientConfiguration"}, err
		}

		return nil, err
	case kubeconfigType:
		before, err := renewalDuration(stringOf(inputs.Get("certificateRenewalDuration")))
		if err != nil {
			return nil, err
		}

		certificate := stringField(state.Get("kubernetesClientConfiguration"), "clientCertificate")

		due, err := expiresBefore(certificate, r.now().Add(before))
		if due {
			return []string{"kubeconfigRaw", "kubernetesClientConfiguration"}, err
		}

		return nil, err
	default:
		return nil, nil
	}
}

func stringOf(v property.Value) string {
	if v.IsString() {
		return v.AsString()
	}

	return ""
}

func stringField(v property.Value, name string) string {
	if v.IsMap() {
		return stringOf(v.AsMap().Get(name))
	}

	return ""
}
