package plugin

import (
	"reflect"
	"strings"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/provider"

	"talos-proxmox/components"
)

// construct makes a component of its arguments.
type construct func(
	*pulumi.Context, string, provider.ConstructInputs, pulumi.ResourceOption,
) (pulumi.ComponentResource, error)

// component is a component as it is served: its schema, and how it is made.
type component struct {
	infer.InferredComponent

	token             string
	arguments, output reflect.Type
	construct         construct
}

// all are the components that are served.
func all() []component {
	return []component{
		serve(components.ProxmoxHostPrepType, components.NewProxmoxHostPrep),
		serve(components.TalosImageType, components.NewTalosImage),
		serve(components.SystemImageType, components.NewSystemImage),
		serve(components.GoldenTemplateType, components.NewGoldenTemplate),
		serve(components.PCIMappingType, components.NewPCIMapping),
		serve(components.CloudMachineType, components.NewCloudMachine),
		serve(components.TalosNodeType, components.NewTalosNode),
		serve(components.GPUWorkerType, components.NewGPUWorker),
		serve(components.TalosClusterType, components.NewTalosCluster),
	}
}

func serve[A any, C pulumi.ComponentResource](token string, make infer.ComponentFn[A, C]) component {
	return component{
		InferredComponent: infer.Component(&typed[A, C]{token: token, make: make}),
		token:             token,
		arguments:         reflect.TypeFor[A](),
		output:            reflect.TypeFor[C]().Elem(),
		construct: func(
			ctx *pulumi.Context, name string, inputs provider.ConstructInputs, opts pulumi.ResourceOption,
		) (pulumi.ComponentResource, error) {
			var args A
			if err := inputs.CopyTo(&args); err != nil {
				return nil, err
			}

			return make(ctx, name, args, opts)
		},
	}
}

// typed is what a component's schema is inferred from, under the type token that its resources have.
type typed[A any, C pulumi.ComponentResource] struct {
	token string
	make  infer.ComponentFn[A, C]
}

// Annotate implements [infer.Annotated].
func (t *typed[A, C]) Annotate(a infer.Annotator) {
	if parts := strings.Split(t.token, ":"); len(parts) == 3 { // infer also asks an empty one
		a.SetToken(tokens.ModuleName(parts[1]), tokens.TypeName(parts[2]))
	}
}

// Construct implements [infer.ComponentResource]. It is not called: see [server.Construct].
func (t *typed[A, C]) Construct(
	ctx *pulumi.Context, name, _ string, args A, opts pulumi.ResourceOption,
) (C, error) {
	return t.make(ctx, name, args, opts)
}
