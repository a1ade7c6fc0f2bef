// Package talos is a stand-in for the published Pulumi provider for Talos Linux: the same resources, properties,
// defaults, replace rules and calls, as far as this program uses them.
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

// Types of resources that have their own rules beside "a changed input is an update".
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

// Provider makes an instance of the provider. New clusters of contracts since 1.7 get the RSA key in PEM for their
// service accounts; empty = each gets one of its own.
func Provider(serviceAccountKey []byte) p.Provider { return newProvider(time.Now, serviceAccountKey) }

func newProvider(now func() time.Time, serviceAccountKey []byte) p.Provider {
	provider := infer.Provider(infer.Options{
		Config: infer.Config(settings{}),
		Resources: []infer.InferredResource{
			infer.Resource(&secretsResource{now: now, serviceAccountKey: serviceAccountKey}),
			infer.Resource(&applyResource{}),
			infer.Resource(&kubeconfigResource{now: now}),
			infer.Resource(&schematicResource{}),
		},
		Functions: []infer.InferredFunction{
			infer.Function(&machineConfiguration{now: now}),
			infer.Function(&talosConfiguration{}),
		},
	})

	rules := rules{now: now}
	provider.Diff = rules.diff(provider.Diff)
	provider.Update = rules.update(provider.Update)
	provider.Read = readSecrets(provider.Read)
	provider.Invoke = withID(provider.Invoke)

	return provider
}

// metaKey is where the published provider notes the form of a state, which `talos-proxmox import` states.
const metaKey = "__meta"

// readSecrets keeps the state of machine secrets, as the published provider does: there is no one to ask for them.
func readSecrets(
	next func(context.Context, p.ReadRequest) (p.ReadResponse, error),
) func(context.Context, p.ReadRequest) (p.ReadResponse, error) {
	return func(ctx context.Context, request p.ReadRequest) (p.ReadResponse, error) {
		if request.Urn.Type() == secretsType {
			return p.ReadResponse{ID: request.ID, Properties: request.Properties, Inputs: request.Inputs}, nil
		}

		return next(ctx, request)
	}
}

// withID adds the id that both functions answer, the cluster's name: inferred schemas allow no property of that name.
func withID(
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

// rules are those that inferred resources cannot express: they need the old state as well as the new inputs, or make
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

		renewed, err := r.renewed(request.Urn.Type(), request.State, request.Inputs)
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

		renewed, err := r.renewed(request.Urn.Type(), request.State, request.Inputs)
		for _, name := range renewed {
			response.Properties = response.Properties.Set(name, property.New(property.Computed).WithSecret(true))
		}

		return response, err
	}
}

// renewed names the outputs of a resource that an update makes again because a certificate in them runs out.
func (r rules) renewed(typ tokens.Type, state, inputs property.Map) ([]string, error) {
	switch typ {
	case secretsType:
		due, err := expires(
			member(state.Get("clientConfiguration"), "clientCertificate"), r.now().AddDate(0, secretsRenewalMonths, 0),
		)
		if due {
			return []string{"clientConfiguration"}, err
		}

		return nil, err
	case kubeconfigType:
		before, err := renewalDuration(text(inputs.Get("certificateRenewalDuration")))
		if err != nil {
			return nil, err
		}

		due, err := expires(member(state.Get("kubernetesClientConfiguration"), "clientCertificate"), r.now().Add(before))
		if due {
			return []string{"kubeconfigRaw", "kubernetesClientConfiguration"}, err
		}

		return nil, err
	default:
		return nil, nil
	}
}

func text(v property.Value) string {
	if v.IsString() {
		return v.AsString()
	}

	return ""
}

func member(v property.Value, name string) string {
	if v.IsMap() {
		return text(v.AsMap().Get(name))
	}

	return ""
}
