package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// Pulumi's own keys of a policy-config.json.
const (
	keyAll          = "all"
	keyEnvironments = "environments"
	keyLevel        = "enforcementLevel"
)

// CheckConfigFile is [CheckConfig] for a file; every line of its error begins with the file's path.
func CheckConfigFile(path string) error {
	file, err := os.ReadFile(path) //nolint:gosec // the user's own file
	if err != nil {
		return fmt.Errorf("unable to read the configuration of the policies: %w", err)
	}

	if err := CheckConfig(file); err != nil {
		return errors.New(path + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+path+": "))
	}

	return nil
}

// CheckConfig reports all unknown policies and options of a policy-config.json. Pulumi ignores them, so a misspelt one
// would silently change nothing. Pulumi checks levels and values itself, by the options' schemas.
func CheckConfig(file []byte) error {
	var config map[string]json.RawMessage
	if err := json.Unmarshal(file, &config); err != nil {
		return fmt.Errorf("not a JSON object of policies: %w", err)
	}

	known := map[string]policy{keyAll: {Name: keyAll}, keyEnvironments: {}}
	for _, p := range policies() {
		known[p.Name] = p
	}

	names := slices.Sorted(maps.Keys(known))

	var problems []error

	for _, name := range slices.Sorted(maps.Keys(config)) {
		p, ok := known[name]
		if !ok {
			problems = append(problems, fmt.Errorf("%s: there is no such policy; %s", name, spec.Suggest(name, names)))

			continue
		}

		problems = append(problems, p.checkOptions(config[name])...)
	}

	return errors.Join(problems...)
}

func (p policy) checkOptions(given json.RawMessage) []error {
	var settings map[string]any
	if json.Unmarshal(given, &settings) != nil { // only a level, or something that Pulumi refuses
		return nil
	}

	known := []string{keyLevel}
	for _, o := range p.Options {
		known = append(known, o.Key)
	}

	var problems []error

	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if !slices.Contains(known, key) {
			problems = append(
				problems, fmt.Errorf("%s.%s: the policy has no such option; %s", p.Name, key, spec.Suggest(key, known)),
			)
		}
	}

	return problems
}
