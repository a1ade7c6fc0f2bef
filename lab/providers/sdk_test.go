package providers_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi-command/sdk/go/command/remote"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/client"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/cluster"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/imagefactory"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/tokens"
	"talos-proxmox/lab/providers/command"
	"talos-proxmox/lab/providers/proxmoxve"
	"talos-proxmox/lab/providers/talos"
)

// sdkType has the published SDK's structs of a resource or a function, whose fields have the properties' names in
// tags.
type sdkType struct{ inputs, outputs reflect.Type }

func sdkResource[Args interface{ ElementType() reflect.Type }, Resource any]() sdkType {
	var args Args

	return sdkType{args.ElementType(), reflect.TypeFor[Resource]()}
}

// sdkTypes returns the types of the inferred stand-ins by token. The tables of the one for Proxmox have their own
// test.
func sdkTypes() map[string]sdkType {
	return map[string]sdkType{
		tokens.Schematic:     sdkResource[imagefactory.SchematicArgs, imagefactory.Schematic](),
		tokens.Secrets:       sdkResource[machine.SecretsArgs, machine.Secrets](),
		tokens.Kubeconfig:    sdkResource[cluster.KubeconfigArgs, cluster.Kubeconfig](),
		tokens.LocalCommand:  sdkResource[local.CommandArgs, local.Command](),
		tokens.RemoteCommand: sdkResource[remote.CommandArgs, remote.Command](),

		"command:local:run": {reflect.TypeFor[local.RunArgs](), reflect.TypeFor[local.RunResult]()},
		"talos:client/getConfiguration:getConfiguration": {
			reflect.TypeFor[client.GetConfigurationArgs](), reflect.TypeFor[client.GetConfigurationResult](),
		},
	}
}

// shape is the type of a property in both forms: string, boolean, integer, number, any, array, map, object.
type shape struct {
	kind    string
	element *shape
	fields  map[string]shape
}

// sdkShape returns the shape of a type of the SDK.
func sdkShape(t reflect.Type) shape {
	if output, ok := reflect.Zero(t).Interface().(pulumi.Output); ok && t.Kind() == reflect.Struct {
		return sdkShape(output.ElementType())
	}

	switch t.Kind() { //nolint:exhaustive // the rest is not a property's
	case reflect.Pointer:
		return sdkShape(t.Elem())
	case reflect.String:
		return shape{kind: "string"}
	case reflect.Bool:
		return shape{kind: "boolean"}
	case reflect.Int:
		return shape{kind: "integer"}
	case reflect.Float64:
		return shape{kind: "number"}
	case reflect.Slice:
		element := sdkShape(t.Elem())

		return shape{kind: "array", element: &element}
	case reflect.Map:
		element := sdkShape(t.Elem())

		return shape{kind: "map", element: &element}
	case reflect.Struct:
		return shape{kind: "object", fields: sdkFields(t)}
	default:
		return shape{kind: "any"}
	}
}

func sdkFields(t reflect.Type) map[string]shape {
	fields := map[string]shape{}

	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("pulumi"); name != "" {
			fields[name] = sdkShape(t.Field(i).Type)
		}
	}

	return fields
}

// packageSchema is the part of a stand-in's schema that is compared.
type packageSchema struct {
	Types     map[string]property
	Resources map[string]struct {
		InputProperties, Properties map[string]property
	}
	Functions map[string]struct{ Inputs, Outputs property }
}

type property struct {
	Type, Ref            string
	Items                *property
	AdditionalProperties *property
	Properties           map[string]property
}

// UnmarshalJSON reads $ref as well, which is not a valid field name.
func (p *property) UnmarshalJSON(b []byte) error {
	type plain property

	reference := struct {
		Ref string `json:"$ref"`
		*plain
	}{plain: (*plain)(p)}
	err := json.Unmarshal(b, &reference)
	p.Ref = reference.Ref

	return err
}

func (s packageSchema) shape(p property) shape {
	if name, ok := strings.CutPrefix(p.Ref, "#/types/"); ok {
		return s.shape(s.Types[name])
	}

	switch {
	case p.Ref != "":
		return shape{kind: "any"}
	case p.Type == "array":
		element := s.shape(*p.Items)

		return shape{kind: "array", element: &element}
	case p.AdditionalProperties != nil:
		element := s.shape(*p.AdditionalProperties)

		return shape{kind: "map", element: &element}
	case p.Type == "object":
		return shape{kind: "object", fields: s.fields(p.Properties)}
	default:
		return shape{kind: p.Type}
	}
}

func (s packageSchema) fields(properties map[string]property) map[string]shape {
	fields := map[string]shape{}
	for name, p := range properties {
		fields[name] = s.shape(p)
	}

	return fields
}

// standIns returns the stand-ins by package name.
func standIns(t *testing.T) map[string]integration.Server {
	t.Helper()

	commands, err := command.Provider(command.Options{})
	require.NoError(t, err)

	servers := map[string]integration.Server{}

	for name, provider := range map[string]p.Provider{
		"command": commands, "talos": talos.Provider(nil), "proxmoxve": proxmoxve.Provider(0, nil),
	} {
		servers[name], err = integration.NewServer(
			t.Context(), name, semver.MustParse("1.0.0"), integration.WithProvider(provider),
		)
		require.NoError(t, err)
	}

	return servers
}

// standInTypes returns the types in the schemas of the inferred stand-ins.
func standInTypes(t *testing.T) map[string][2]map[string]shape {
	t.Helper()

	types := map[string][2]map[string]shape{}

	for _, name := range []string{"command", "talos"} {
		response, err := standIns(t)[name].GetSchema(p.GetSchemaRequest{})
		require.NoError(t, err)

		var s packageSchema
		require.NoError(t, json.Unmarshal([]byte(response.Schema), &s))

		for token, r := range s.Resources {
			types[token] = [2]map[string]shape{s.fields(r.InputProperties), s.fields(r.Properties)}
		}

		for token, f := range s.Functions {
			types[token] = [2]map[string]shape{s.fields(f.Inputs.Properties), s.fields(f.Outputs.Properties)}
		}
	}

	return types
}

// differences lists what one side has and the other has not, or in another shape.
func differences(path string, have, known shape) []string {
	if have.kind != known.kind {
		return []string{fmt.Sprintf("%s is %s, in the published SDK %s", path, have.kind, known.kind)}
	}

	if have.element != nil {
		return differences(path+"[]", *have.element, *known.element)
	}

	return missing(path, have.fields, known.fields)
}

func missing(path string, have, known map[string]shape) []string {
	var list []string

	for name, h := range have {
		k, ok := known[name]
		if !ok {
			list = append(list, fmt.Sprintf("%s.%s is unknown to the published SDK", path, name))

			continue
		}

		list = append(list, differences(path+"."+name, h, k)...)
	}

	return list
}

// TestStandInsOfferOnlyWhatIsPublished compares names and types of all properties with the SDK's structs.
func TestStandInsOfferOnlyWhatIsPublished(t *testing.T) {
	t.Parallel()

	published, offered := sdkTypes(), standInTypes(t)

	for token, standIn := range offered {
		sdk, ok := published[token]
		if !assert.True(t, ok, "%s is not compared: add it to sdkTypes", token) {
			continue
		}

		assert.Empty(t, missing(token+" input ", standIn[0], sdkFields(sdk.inputs)))
		assert.Empty(t, missing(token+" output ", standIn[1], sdkFields(sdk.outputs)))
	}

	for token := range published {
		assert.Contains(t, offered, token, "no stand-in offers it")
	}
}
