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

// constructor creates a component from its arguments.
type constructor func(
	*pulumi.Context, string, provider.ConstructInputs, texts, pulumi.ResourceOption,
) (pulumi.ComponentResource, error)

// component is a served component: its schema and its constructor.
type component struct {
	infer.InferredComponent

	token             string
	arguments, output reflect.Type
	newComponent      constructor
}

// servedComponents returns the components that the plugin serves.
func servedComponents() []component {
	return []component{
		newServedComponent(components.ProxmoxHostPrepType, components.NewProxmoxHostPrep),
		newServedComponent(components.TalosImageType, components.NewTalosImage),
		newServedComponent(components.SystemImageType, components.NewSystemImage),
		newServedComponent(components.GoldenTemplateType, components.NewGoldenTemplate),
		newServedComponent(components.PCIMappingType, components.NewPCIMapping),
		newServedComponent(components.USBMappingType, components.NewUSBMapping),
		newServedComponent(components.CloudMachineType, components.NewCloudMachine),
		newServedComponent(components.TalosNodeType, components.NewTalosNode),
		newServedComponent(components.GPUWorkerType, components.NewGPUWorker),
		newServedComponent(components.TalosClusterType, components.NewTalosCluster),
	}
}

func newServedComponent[A any, C pulumi.ComponentResource](token string, make infer.ComponentFn[A, C]) component {
	return component{
		InferredComponent: infer.Component(&schemaSource[A, C]{token: token, make: make}),
		token:             token,
		arguments:         reflect.TypeFor[A](),
		output:            reflect.TypeFor[C]().Elem(),
		newComponent: func(
			ctx *pulumi.Context, name string, inputs provider.ConstructInputs, texts texts, opts pulumi.ResourceOption,
		) (pulumi.ComponentResource, error) {
			var args A
			if err := inputs.CopyTo(&args); err != nil {
				return nil, err
			}

			if err := texts.parseInto("", reflect.ValueOf(&args).Elem()); err != nil {
				return nil, err
			}

			return make(ctx, name, args, opts)
		},
	}
}

// schemaSource is the type from which infer derives a component's schema, with the type token of its resources.
type schemaSource[A any, C pulumi.ComponentResource] struct {
	token string
	make  infer.ComponentFn[A, C]
}

// Annotate implements [infer.Annotated].
func (t *schemaSource[A, C]) Annotate(a infer.Annotator) {
	if parts := strings.Split(t.token, ":"); len(parts) == 3 { // infer also annotates a zero value
		a.SetToken(tokens.ModuleName(parts[1]), tokens.TypeName(parts[2]))
	}
}

// Construct implements [infer.ComponentResource]. It is not called: see [server.Construct].
func (t *schemaSource[A, C]) Construct(
	ctx *pulumi.Context, name, _ string, args A, opts pulumi.ResourceOption,
) (C, error) {
	return t.make(ctx, name, args, opts)
}
