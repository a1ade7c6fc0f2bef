package stacks

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
)

// PlanFile computes the plan of a stack file, without an engine: nothing is decrypted, and no credentials are needed.
// The error is a [problem.List] with all problems.
func PlanFile(stack string, content []byte) (*spec.Plan, error) {
	return planFile(stack, content, false)
}

// PlanUnconnected is [PlanFile] where no one is asked anything: neither the endpoint nor how hosts are reached has to
// be set, as in the lab's own stack.
func PlanUnconnected(stack string, content []byte) (*spec.Plan, error) {
	return planFile(stack, content, true)
}

func planFile(stack string, content []byte, unconnected bool) (*spec.Plan, error) {
	var file struct {
		Config map[string]any `yaml:"config"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("unable to read %s (YAML is indented by blanks, never by tabs): %w", fileName(stack), err)
	}

	stated := proxmoxapi.Settings(func(key string) string {
		text, _ := file.Config["proxmoxve:"+key].(string)

		return text
	}, os.Getenv)

	problems := unknownKeys(slices.Collect(maps.Keys(file.Config)))
	if !unconnected {
		problems = append(problems, checkEndpoint(stated)...)
	}

	configuration := map[string]string{}

	for key, value := range file.Config {
		name, ours := strings.CutPrefix(key, namespace+":")
		if !ours && strings.Contains(name, ":") {
			continue // a provider's
		}

		text, err := handedOver(value)
		if err != nil {
			return nil, fmt.Errorf("unable to read %s of stack %q: %w", key, stack, err)
		}

		configuration[name] = text
	}

	options := blinded(stack)
	options.Unconnected = unconnected

	plan, err := load(configuration, options)
	if err != nil {
		problems = append(problems, problemsOf(err)...)
	}

	if len(problems) > 0 {
		return nil, problems
	}

	return plan, nil
}

// handedOver is a value of a stack's file as the engine hands it over: text as it is, since Pulumi writes "false" for
// false, and everything else as JSON.
func handedOver(value any) (string, error) {
	if text, ok := value.(string); ok {
		return text, nil
	}

	text, err := json.Marshal(withTextKeys(value))

	return string(text), err
}

// withTextKeys gives every mapping keys of text, as the engine does: `nodes: {2: …}` has a number.
func withTextKeys(value any) any {
	switch v := value.(type) {
	case map[any]any:
		named := map[string]any{}
		for key, inner := range v {
			named[fmt.Sprint(key)] = withTextKeys(inner)
		}

		return named
	case map[string]any:
		for key, inner := range v {
			v[key] = withTextKeys(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = withTextKeys(inner)
		}
	}

	return value
}
