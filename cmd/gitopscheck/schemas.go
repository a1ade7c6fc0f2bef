package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/client-go/kubernetes/scheme"
)

// schemas judge objects: built-in kinds by their Go types, custom resources by their definitions, with the library of
// the API server itself.
type schemas struct {
	custom map[runtimeschema.GroupVersionKind]*customKind
}

// customKind is a version of a custom resource.
type customKind struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// definitions are the folders or files with definitions, by module.
var definitions = map[string][]string{ //nolint:gochecknoglobals // a table
	"github.com/cilium/cilium":                       {"pkg/k8s/apis/cilium.io/client/crds/*/*.yaml"},
	"github.com/cert-manager/cert-manager":           {"deploy/crds/*.yaml"},
	"sigs.k8s.io/gateway-api":                        {"config/crd/standard/*.yaml"},
	"github.com/controlplaneio-fluxcd/flux-operator": {"config/crd/bases/*.yaml", "config/data/flux/<newest>/*-controller.yaml"},
}

// loadSchemas reads the definitions of the modules that a folder's go.mod names.
func loadSchemas(ctx context.Context, folder string) (*schemas, error) {
	found := &schemas{custom: map[runtimeschema.GroupVersionKind]*customKind{}}

	arguments := []string{"mod", "download", "-json"}
	for module := range definitions {
		arguments = append(arguments, module)
	}

	command := exec.CommandContext(ctx, "go", arguments...) //nolint:gosec // names of a table
	command.Dir, command.Stderr = folder, os.Stderr
	// A module may ask for a newer Go than the one here, which the Go command then downloads as a module, too. Images with
	// Go in them switch that off.
	command.Env = append(command.Environ(), "GOTOOLCHAIN=auto")

	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("unable to get the modules with custom resource definitions (go mod download): %w", err)
	}

	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var module struct{ Path, Dir string }
		if err := decoder.Decode(&module); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("unable to read what go mod download says: %w", err)
		}

		for _, pattern := range definitions[module.Path] {
			if err := found.load(filepath.Join(module.Dir, pattern)); err != nil {
				return nil, fmt.Errorf("module %s: %w", module.Path, err)
			}
		}
	}
}

// load reads the definitions of files; <newest> stands for the folder with the highest version.
func (s *schemas) load(pattern string) error {
	if before, after, versioned := strings.Cut(pattern, "<newest>"); versioned {
		newest := ""

		entries, err := os.ReadDir(before)
		if err != nil {
			return fmt.Errorf("unable to list its versions: %w", err)
		}

		for _, entry := range entries {
			if semver.Compare(entry.Name(), newest) > 0 {
				newest = entry.Name()
			}
		}

		pattern = before + newest + after
	}

	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return fmt.Errorf("has no definitions in %s: %w", pattern, err)
	}

	for _, file := range files {
		if err := s.loadFile(file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}

	return nil
}

func (s *schemas) loadFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()

	for decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := decoder.Decode(&definition); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("unable to read it: %w", err)
		}

		if definition.Kind != "CustomResourceDefinition" {
			continue
		}

		for _, version := range definition.Spec.Versions {
			kind, err := newCustomKind(version)
			if err != nil {
				return fmt.Errorf("%s %s: %w", definition.Name, version.Name, err)
			}

			s.custom[runtimeschema.GroupVersionKind{
				Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind,
			}] = kind
		}
	}
}

func newCustomKind(version apiextensionsv1.CustomResourceDefinitionVersion) (*customKind, error) {
	var internal apiextensions.CustomResourceValidation
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		version.Schema, &internal, nil,
	); err != nil {
		return nil, fmt.Errorf("unable to convert its schema: %w", err)
	}

	structural, err := schema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("unable to read its schema: %w", err)
	}

	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("unable to read its schema: %w", err)
	}

	return &customKind{structural: structural, validator: validator}, nil
}

// judge says what the API server would refuse of an object, and drop without a word. It does not know whether a value
// of a built-in kind is one that Kubernetes takes. known is false for kinds without a definition.
func (s *schemas) judge(o object) (problems []string, known bool) {
	kind := o.GroupVersionKind()
	if scheme.Scheme.Recognizes(kind) {
		return judgeBuiltIn(o), true
	}

	custom, known := s.custom[kind]
	if !known {
		return nil, false
	}

	return custom.judge(o), true
}

func judgeBuiltIn(o object) []string {
	text, err := o.MarshalJSON()
	if err != nil {
		return []string{err.Error()}
	}

	strict := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		serializer.SerializerOptions{Strict: true})
	if _, _, err := strict.Decode(text, nil, nil); err != nil {
		return []string{err.Error()}
	}

	return nil
}

func (k *customKind) judge(o object) []string {
	var problems []string

	fields := o.DeepCopy().Object
	for _, unknown := range pruning.PruneWithOptions(fields, k.structural, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		problems = append(problems, fmt.Sprintf("unknown field %q", unknown))
	}

	defaulting.Default(fields, k.structural)

	for _, err := range validation.ValidateCustomResource(nil, fields, k.validator) {
		problems = append(problems, err.Error())
	}

	if k.rules == nil {
		k.rules = cel.NewValidator(k.structural, true, celconfig.PerCallLimit)
	}

	if k.rules != nil && len(problems) == 0 {
		found, _ := k.rules.Validate(context.Background(), nil, k.structural, fields, nil, celconfig.RuntimeCELCostBudget)
		for _, err := range found {
			problems = append(problems, err.Error())
		}
	}

	return problems
}
