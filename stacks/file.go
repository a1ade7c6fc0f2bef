package stacks

import (
	"encoding/json"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"proxmox-talos/internal/spec"
)

// PlanFile decides what the stack with this stack file's content consists of, without an engine.
func PlanFile(stack string, content []byte) (*spec.Plan, error) {
	var file struct {
		Config map[string]any `yaml:"config"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("unable to read the file of stack %q: %w", stack, err)
	}

	configuration := map[string]string{}
	for key, value := range file.Config {
		name, ours := strings.CutPrefix(key, namespace+":")
		if !ours && strings.Contains(name, ":") {
			continue // a provider's
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("unable to read %s of stack %q: %w", key, stack, err)
		}
		configuration[name] = string(text)
	}

	return Plan(stack, configuration)
}
