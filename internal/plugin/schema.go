package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	provider "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi-go-provider/middleware/schema"
	codegen "github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// Name and Version of the package; a plugin from a Git repository has the repository's version instead.
const (
	Name    = "talos-proxmox"
	Version = "0.1.0"
)

// typePrefix is the prefix of the tokens of argument types.
const typePrefix = Name + ":index:"

// Describe returns the description of a type or, by its name in other languages, of a field.
type Describe func(structure, field string) string

// Schema returns the schema of the package, derived from the types of the components.
func Schema(describe Describe) (*codegen.PackageSpec, error) {
	options := infer.Options{
		Metadata: schema.Metadata{
			DisplayName: "Talos on Proxmox VE",
			Description: "Talos Kubernetes clusters with GPU workers on Proxmox VE hosts.",
			Keywords:    []string{"category/infrastructure", "kind/component", "kubernetes", "proxmox", "talos"},
			LanguageMap: languages(),
		},
		ModuleMap: map[tokens.ModuleName]tokens.ModuleName{},
	}
	// The packages with argument types.
	for _, folder := range []tokens.ModuleName{"components", "spec", "request", "cilium", "systems"} {
		options.ModuleMap[folder] = "index"
	}

	for _, c := range servedComponents() {
		options.Components = append(options.Components, c)
	}

	server, err := provider.RawServer(Name, Version, infer.Provider(options))(nil)
	if err != nil {
		return nil, err
	}

	response, err := server.GetSchema(context.Background(), &pulumirpc.GetSchemaRequest{})
	if err != nil {
		return nil, fmt.Errorf("unable to infer the schema of the components: %w", err)
	}

	// A node's arguments are also part of a GPU worker's: without this, generated names would end in ArgsArgs.
	text := strings.NewReplacer(
		typePrefix+`TalosNodeArgs"`, typePrefix+`TalosNode"`, `"$ref":"`+textReference+`"`, `"type":"string"`,
	).Replace(response.GetSchema())

	spec := &codegen.PackageSpec{}
	if err := json.Unmarshal([]byte(text), spec); err != nil {
		return nil, fmt.Errorf("unable to read the schema of the components: %w", err)
	}

	for _, c := range servedComponents() {
		c.describe(spec, describe)
	}

	return spec, nil
}

// languages returns the names of the generated packages, which do not depend on the plugin's source.
func languages() map[string]any {
	return map[string]any{
		"nodejs": map[string]any{"packageName": Name, "respectSchemaVersion": true},
		"python": map[string]any{
			"packageName": "talos_proxmox", "respectSchemaVersion": true, "pyproject": map[string]any{"enabled": true},
		},
		"go": map[string]any{
			"importBasePath": Name + "/sdk/go/talosproxmox", "generateResourceContainerTypes": true,
			"respectSchemaVersion": true,
		},
		"csharp": map[string]any{"respectSchemaVersion": true},
	}
}

// describe adds what infer leaves out of the schema: descriptions, plain values in argument types, and optional
// outputs.
func (c component) describe(spec *codegen.PackageSpec, describe Describe) {
	resource := spec.Resources[c.token]
	resource.Description = describe(c.output.Name(), "")

	for name, property := range resource.Properties {
		property.Description = describe(c.output.Name(), name)
		resource.Properties[name] = property
	}

	for _, f := range pulumiFields(c.output) {
		if f.kind == reflect.TypeFor[pulumi.StringPtrOutput]() {
			resource.Required = slices.DeleteFunc(resource.Required, func(name string) bool { return name == f.name })
		}
	}

	c.describeInputs(spec, c.arguments, resource.InputProperties, describe)
	spec.Resources[c.token] = resource
}

func (c component) describeInputs(
	spec *codegen.PackageSpec, structure reflect.Type, properties map[string]codegen.PropertySpec, describe Describe,
) {
	for _, f := range pulumiFields(structure) {
		property := properties[f.name]
		property.Description = describe(structure.Name(), f.name)
		markPlain(&property.TypeSpec, f.kind)
		properties[f.name] = property

		inner := elementType(f.kind)
		if inner.Kind() != reflect.Struct || isInput(inner) || isText(inner) {
			continue
		}

		token := typePrefix + strings.TrimSuffix(inner.Name(), "Args")
		named := spec.Types[token]
		named.Description = describe(inner.Name(), "")
		c.describeInputs(spec, inner, named.Properties, describe)
		spec.Types[token] = named
	}
}

// markPlain marks values for which components accept no outputs. Structs are not marked: their fields may be inputs.
func markPlain(spec *codegen.TypeSpec, kind reflect.Type) {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}

	if isInput(kind) {
		markInput(spec)

		return
	}

	spec.Plain = kind.Kind() != reflect.Struct || isText(kind)
	switch {
	case spec.Items != nil:
		markPlain(spec.Items, kind.Elem())
	case spec.AdditionalProperties != nil:
		markPlain(spec.AdditionalProperties, kind.Elem())
	}
}

// markInput removes the mark from an input and its elements, which may be inputs, too.
func markInput(spec *codegen.TypeSpec) {
	spec.Plain = false
	if spec.Items != nil {
		markInput(spec.Items)
	}
}
