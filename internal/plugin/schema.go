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

// Name is that of the package, and Version its version; a plugin that comes from a Git repository has that one's.
const (
	Name    = "talos-proxmox"
	Version = "0.1.0"
)

// typePrefix begins the tokens of the types that arguments are made of.
const typePrefix = Name + ":index:"

// Describe says what a type of the components is, or a field of it by its name in other languages.
type Describe func(structure, field string) string

// Schema is the package's, as it follows from the components' types.
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
	// The packages that have types of arguments.
	for _, folder := range []tokens.ModuleName{"components", "spec", "request", "cilium", "systems"} {
		options.ModuleMap[folder] = "index"
	}

	for _, c := range all() {
		options.Components = append(options.Components, c)
	}

	server, err := provider.RawServer(Name, Version, infer.Provider(options))(nil)
	if err != nil {
		return nil, err
	}

	answer, err := server.GetSchema(context.Background(), &pulumirpc.GetSchemaRequest{})
	if err != nil {
		return nil, fmt.Errorf("unable to infer the schema of the components: %w", err)
	}

	// The arguments of a node are also a part of a GPU worker's: no language wants two words for arguments in a name.
	text := strings.ReplaceAll(answer.GetSchema(), typePrefix+`TalosNodeArgs"`, typePrefix+`TalosNode"`)

	spec := &codegen.PackageSpec{}
	if err := json.Unmarshal([]byte(text), spec); err != nil {
		return nil, fmt.Errorf("unable to read the schema of the components: %w", err)
	}

	for _, c := range all() {
		c.refine(spec, describe)
	}

	return spec, nil
}

// languages are the names of the generated packages, which are the same wherever the plugin comes from.
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

// refine says of a component and of the types of its arguments what infer does not: descriptions, which values are
// plain inside of types, and which outputs may be missing.
func (c component) refine(spec *codegen.PackageSpec, describe Describe) {
	resource := spec.Resources[c.token]
	resource.Description = describe(c.output.Name(), "")

	for name, property := range resource.Properties {
		property.Description = describe(c.output.Name(), name)
		resource.Properties[name] = property
	}

	for _, f := range fieldsOf(c.output) {
		if f.kind == reflect.TypeFor[pulumi.StringPtrOutput]() {
			resource.Required = slices.DeleteFunc(resource.Required, func(name string) bool { return name == f.name })
		}
	}

	c.refineInputs(spec, c.arguments, resource.InputProperties, describe)
	spec.Resources[c.token] = resource
}

func (c component) refineInputs(
	spec *codegen.PackageSpec, structure reflect.Type, properties map[string]codegen.PropertySpec, describe Describe,
) {
	for _, f := range fieldsOf(structure) {
		property := properties[f.name]
		property.Description = describe(structure.Name(), f.name)
		markPlain(&property.TypeSpec, f.kind)
		properties[f.name] = property

		inner := leafOf(f.kind)
		if inner.Kind() != reflect.Struct || isInput(inner) {
			continue
		}

		token := typePrefix + strings.TrimSuffix(inner.Name(), "Args")
		named := spec.Types[token]
		named.Description = describe(inner.Name(), "")
		c.refineInputs(spec, inner, named.Properties, describe)
		spec.Types[token] = named
	}
}

// markPlain has the languages take nothing but plain values where components do. A struct is not marked: its parts may
// be inputs.
func markPlain(spec *codegen.TypeSpec, kind reflect.Type) {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}

	if isInput(kind) {
		unmark(spec)

		return
	}

	spec.Plain = kind.Kind() != reflect.Struct
	switch {
	case spec.Items != nil:
		markPlain(spec.Items, kind.Elem())
	case spec.AdditionalProperties != nil:
		markPlain(spec.AdditionalProperties, kind.Elem())
	}
}

// unmark takes the marks of an input's elements, which may be inputs too.
func unmark(spec *codegen.TypeSpec) {
	spec.Plain = false
	if spec.Items != nil {
		unmark(spec.Items)
	}
}
