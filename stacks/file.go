package stacks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
)

// PlanFile computes the plan of a stack file, without an engine: nothing is decrypted, and no credentials are needed.
// The error is a [problem.List] with all problems.
func PlanFile(stack string, content []byte) (*spec.Plan, error) {
	s, err := planFile(stack, content, false)

	return s.plan, err
}

// PlanUnconnected is [PlanFile] without any connection: neither the endpoint nor the shells of hosts have to be set, as
// in the lab's own stack.
func PlanUnconnected(stack string, content []byte) (*spec.Plan, error) {
	s, err := planFile(stack, content, true)

	return s.plan, err
}

// PlanChecked is [PlanUnconnected] after all checks of a run for which the stack file suffices. Their warnings and
// notes become those of the plan.
func PlanChecked(ctx context.Context, stack string, content []byte) (*spec.Plan, error) {
	s, err := planFile(stack, content, true)
	if err != nil {
		return nil, err
	}

	d := newDeployment(ctx, s, surroundings{project: Project, stack: stack, preview: true, blinded: true})

	var found problem.List

	for _, check := range d.checks() {
		if check.evidence == fromFile {
			more, err := check.run(ctx)
			if err != nil {
				return nil, err
			}

			found = append(found, more...)
		}
	}

	if problems := found.Errors(); len(problems) > 0 {
		return nil, problems
	}

	s.plan.Warnings = append(found.Warnings().Lines(), found.Notes().Lines()...)

	return s.plan, nil
}

// duplicateKey matches the YAML library's error about a key that a map has twice.
var duplicateKey = regexp.MustCompile(`line (\d+): mapping key "([^"]+)" already defined at line (\d+)`)

// indentedByTab matches a line whose indentation has a tab.
var indentedByTab = regexp.MustCompile(`(?m)^ *\t`)

// YAMLError returns an error about a stack file that is no YAML, by its content and the error of the YAML library.
func YAMLError(file string, content []byte, err error) error {
	if match := duplicateKey.FindStringSubmatch(err.Error()); match != nil {
		return fmt.Errorf("%s:%s: %s: is in the same map as that of line %s; keep one of them", file, match[1], match[2], match[3])
	}

	advice := ""
	if indentedByTab.Match(content) {
		advice = " (YAML is indented by blanks, never by tabs)"
	}

	return fmt.Errorf("unable to read %s%s: %w", file, advice, err)
}

func planFile(stack string, content []byte, unconnected bool) (s settings, err error) {
	var file struct {
		Config map[string]any `yaml:"config"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return s, YAMLError(fileName(stack), content, err)
	}

	if misspelt := misspeltFileKeys(content); len(misspelt) > 0 && len(file.Config) == 0 {
		return s, misspelt // without configuration, everything else is missing
	}

	s.proxmox = proxmoxapi.Settings(func(key string) string {
		text, _ := file.Config["proxmoxve:"+key].(string)

		return text
	}, os.Getenv)

	problems := append(misspeltFileKeys(content), unknownKeys(slices.Collect(maps.Keys(file.Config)))...)
	if !unconnected {
		problems = append(problems, checkEndpoint(s.proxmox)...)
	}

	options := blindedOptions(stack)
	options.Offline = unconnected
	options.FactoryURL, _ = file.Config[keyFactoryURL].(string)
	configuration := map[string]string{}

	for key, value := range file.Config {
		name, ours := strings.CutPrefix(key, Project+":")
		if !ours && strings.Contains(name, ":") {
			continue // a key of a provider
		}

		text, err := engineValue(value)
		if err != nil {
			return s, fmt.Errorf("unable to read %s of stack %q: %w", key, stack, err)
		}

		configuration[name] = text
	}

	plan, err := load(configuration, options)
	if err != nil {
		problems = append(problems, problemsOf(err)...)
	}

	if len(problems) > 0 {
		return s, problems
	}

	s.plan = plan

	return s, nil
}

// engineValue returns a value of a stack file as the engine passes it to programs: text as it is, because Pulumi writes
// "false" for false, and everything else as JSON.
func engineValue(value any) (string, error) {
	if text, ok := value.(string); ok {
		return text, nil
	}

	text, err := json.Marshal(withStringKeys(value))

	return string(text), err
}

// withStringKeys converts the keys of mappings to text, as the engine does: the key in `nodes: {2: …}` is a number.
func withStringKeys(value any) any {
	switch v := value.(type) {
	case map[any]any:
		named := map[string]any{}
		for key, inner := range v {
			named[fmt.Sprint(key)] = withStringKeys(inner)
		}

		return named
	case map[string]any:
		for key, inner := range v {
			v[key] = withStringKeys(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = withStringKeys(inner)
		}
	}

	return value
}
