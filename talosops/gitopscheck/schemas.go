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

// source is a module whose files say what custom resources look like. Nothing of it is compiled into anything.
type source struct {
	module, version string
	sum             string   // of its files, as go.sum has it
	files           []string // patterns; <newest> stands for the folder with the highest version
}

var sources = []source{ //nolint:gochecknoglobals // a table
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
}

// loadSchemas reads the definitions of sources, which the Go command brings.
func loadSchemas(ctx context.Context, from []source) (*schemas, error) {
	found := &schemas{custom: map[runtimeschema.GroupVersionKind]*customKind{}}

	arguments := []string{"mod", "download", "-json"}
	for _, s := range from {
		arguments = append(arguments, s.module+"@"+s.version)
	}

	command := exec.CommandContext(ctx, "go", arguments...) //nolint:gosec // names of a table
	command.Dir = os.TempDir()                              // of no module, whose go.mod would have to be read
	// A module may ask for a newer Go than the one here, which the Go command then downloads as a module, too. Images with
	// Go in them switch that off.
	command.Env = append(command.Environ(), "GOTOOLCHAIN=auto")

	var said bytes.Buffer // of interest only where it fails: which Go it takes, and each module

	command.Stderr = &said

	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("unable to get the modules with custom resource definitions (go mod download): %w\n%s", err, &said)
	}

	decoder := json.NewDecoder(bytes.NewReader(output))

	for _, s := range from {
		var got struct{ Dir, Sum string }
		if err := decoder.Decode(&got); err != nil {
			return nil, fmt.Errorf("unable to read what go mod download says: %w", err)
		}

		if got.Sum != s.sum {
			return nil, fmt.Errorf("module %s %s has the checksum %s, not %s", s.module, s.version, got.Sum, s.sum)
		}

		for _, pattern := range s.files {
			if err := found.load(filepath.Join(got.Dir, pattern)); err != nil {
				return nil, fmt.Errorf("module %s: %w", s.module, err)
			}
		}
	}

	return found, nil
}

// load reads the definitions of files.
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
