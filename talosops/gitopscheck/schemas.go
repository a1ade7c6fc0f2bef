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

// schemas validate objects: built-in kinds by their Go types, custom resources by their definitions, with the API
// server's own library.
type schemas struct {
	custom map[runtimeschema.GroupVersionKind]*customKind
}

// customKind validates a version of a custom resource.
type customKind struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// schemaModule is a Go module with definitions of custom resources. Its code is not compiled.
type schemaModule struct {
	module, version string
	sum             string   // as in go.sum
	files           []string // patterns; <newest> stands for the folder with the highest version
}

var schemaModules = []schemaModule{ //nolint:gochecknoglobals // a table
	{
		"github.com/cilium/cilium", "v1.20.2", "h1:dqiEGIcXc+gqCLYG/l7VCFJ8GHyb4HUrwbZOpkX5dL8=",
		[]string{"pkg/k8s/apis/cilium.io/client/crds/*/*.yaml"},
	},
	{
		"github.com/cert-manager/cert-manager", "v1.21.2", "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=",
		[]string{"deploy/crds/*.yaml"},
	},
	{
		"sigs.k8s.io/gateway-api", "v1.6.3", "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc=",
		[]string{"config/crd/standard/*.yaml"},
	},
	{
		"github.com/controlplaneio-fluxcd/flux-operator", "v0.59.0", "h1:jByuiWYtjSJxucGHuz68tV0DeVFz5CYrKQYfxAwE7lE=",
		[]string{"config/crd/bases/*.yaml", "config/data/flux/<newest>/*-controller.yaml"},
	},
	{
		"github.com/prometheus-operator/prometheus-operator", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
		[]string{"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
	},
	{
		"github.com/siderolabs/talos", "v1.14.1", "h1:hBTn0gwcy0WK6gHsijCtHZCED1BtzA3Wh3w41NL6s3s=",
		[]string{"internal/app/machined/pkg/controllers/k8s/internal/k8stemplates/testdata/talos-service-account-crd.yaml"},
	},
}

// loadSchemas downloads modules with the Go command, and reads their definitions.
func loadSchemas(ctx context.Context, modules []schemaModule) (*schemas, error) {
	found := &schemas{custom: map[runtimeschema.GroupVersionKind]*customKind{}}

	arguments := []string{"mod", "download", "-json"}
	for _, s := range modules {
		arguments = append(arguments, s.module+"@"+s.version)
	}

	command := exec.CommandContext(ctx, "go", arguments...) //nolint:gosec // names of a table
	command.Dir = os.TempDir()                              // outside of a module, whose go.mod the Go command would read
	// A module may require a newer Go, which the Go command then downloads as well. Container images of Go disable that.
	command.Env = append(command.Environ(), "GOTOOLCHAIN=auto")

	var stderr bytes.Buffer // shown only on errors: it has the Go toolchain, and a line for each module

	command.Stderr = &stderr

	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("unable to download the modules with custom resource definitions (go mod download): %w\n%s",
			err, &stderr)
	}

	decoder := json.NewDecoder(bytes.NewReader(output))

	for _, s := range modules {
		var downloaded struct{ Dir, Sum string }
		if err := decoder.Decode(&downloaded); err != nil {
			return nil, fmt.Errorf("unable to read the output of go mod download: %w", err)
		}

		if downloaded.Sum != s.sum {
			return nil, fmt.Errorf("module %s %s has the checksum %s, not %s", s.module, s.version, downloaded.Sum, s.sum)
		}

		for _, pattern := range s.files {
			if err := found.load(filepath.Join(downloaded.Dir, pattern)); err != nil {
				return nil, fmt.Errorf("module %s: %w", s.module, err)
			}
		}
	}

	return found, nil
}

// load reads the definitions in the files that match a pattern.
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

// check returns what the API server would reject in an object, or drop silently. It does not validate the values of
// built-in kinds. known is false for kinds without a definition.
func (s *schemas) check(o object) (problems []string, known bool) {
	kind := o.GroupVersionKind()
	if scheme.Scheme.Recognizes(kind) {
		return checkBuiltIn(o), true
	}

	custom, known := s.custom[kind]
	if !known {
		return nil, false
	}

	return custom.check(o), true
}

func checkBuiltIn(o object) []string {
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

func (k *customKind) check(o object) []string {
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
