package configuration

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/talos"
)

// CheckKnown refuses what was added to configurations after a release, as the decoder of its machinery does
// (pkg/machinery/config/configloader/internal/decoder/decoder.go, and xyaml.CheckUnknownKeys of siderolabs/gen).
// Invalid YAML is left to the decoder.
func CheckKnown(release talos.Release, data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))

	for {
		var node yaml.Node

		switch err := decoder.Decode(&node); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return nil //nolint:nilerr // reported by the decoder
		}

		var document map[string]any
		if len(node.Content) == 0 || node.Decode(&document) != nil || document["$patch"] == "delete" {
			continue
		}

		if err := checkKnown(release, document); err != nil {
			text := func(key string) string {
				s, _ := document[key].(string)

				return s
			}

			return fmt.Errorf("error decoding document %s/%s/%s (line %d): %w",
				text("apiVersion"), cmp.Or(text("kind"), "v1alpha1"), text("name"), node.Content[0].Line, err)
		}
	}
}

func checkKnown(release talos.Release, document map[string]any) error {
	unknown := map[string]any{}

	for _, a := range release.AddedLater(document) {
		switch {
		case a.Field != "":
			merge(unknown, subtree(document, strings.Split(a.Field, ".")))
		case !strings.Contains(a.Kind, "/"): // new names of a known kind are left to validation
			return fmt.Errorf("%q %q: not registered", document["kind"], document["apiVersion"])
		}
	}

	if len(unknown) == 0 {
		return checkArguments(release, document)
	}

	text, err := yaml.Marshal(unknown)
	if err != nil {
		return err
	}

	return fmt.Errorf("unknown keys found during decoding:\n%s", text)
}

// checkArguments checks the arguments of Kubernetes' programs: before Talos 1.13 they are texts
// (pkg/machinery/config/types/v1alpha1: ExtraArgsConfig).
func checkArguments(release talos.Release, document map[string]any) error {
	if release.ListArguments || document["kind"] != nil {
		return nil
	}

	cluster, _ := document["cluster"].(map[string]any)

	for _, program := range []string{"apiServer", "controllerManager", "scheduler", "proxy"} {
		settings, _ := cluster[program].(map[string]any)
		arguments, _ := settings["extraArgs"].(map[string]any)

		for _, value := range arguments {
			if _, several := value.([]any); several {
				return errors.New("yaml: construct errors: cannot construct !!seq into string")
			}
		}
	}

	return nil
}

// subtree returns the part of a value at a path; of a list, the entries that have it.
func subtree(value any, path []string) any {
	if len(path) == 0 {
		return value
	}

	switch value := value.(type) {
	case map[string]any:
		if inner := subtree(value[path[0]], path[1:]); inner != nil {
			return map[string]any{path[0]: inner}
		}
	case []any:
		var entries []any

		for _, entry := range value {
			if inner := subtree(entry, path); inner != nil {
				entries = append(entries, inner)
			}
		}

		if entries != nil {
			return entries
		}
	}

	return nil
}

// merge merges a subtree into another.
func merge(to map[string]any, from any) {
	added, _ := from.(map[string]any)

	for key, value := range added {
		if inner, both := to[key].(map[string]any); both {
			merge(inner, value)
		} else {
			to[key] = value
		}
	}
}
