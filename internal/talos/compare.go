package talos

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

// errConfiguration tells nothing of what was read.
var errConfiguration = errors.New("it is not a machine configuration")

// ConfigurationDifferences compares two machine configurations and returns where they differ, sorted, as paths:
// machine.sysctls["vm.swappiness"], HostnameConfig: hostname, LinkConfig eth1: addresses. It names no value, because
// values may be secret. Comments, the order of documents and of keys, and how Talos writes a value make no difference.
func ConfigurationDifferences(planned, running string) ([]string, error) {
	encodedPlanned, known := usualForm(planned)
	encodedRunning, alsoKnown := usualForm(running)

	if known && alsoKnown {
		planned, running = encodedPlanned, encodedRunning
	}

	one, err := readDocuments(planned)
	if err != nil {
		return nil, fmt.Errorf("unable to read the planned configuration: %w", err)
	}

	other, err := readDocuments(running)
	if err != nil {
		return nil, fmt.Errorf("unable to read the node's configuration: %w", err)
	}

	var paths []string

	for _, name := range slices.Sorted(maps.Keys(union(one, other))) {
		prefix := name
		if name != "" {
			prefix += ": "
		}

		switch {
		case one[name] == nil:
			paths = append(paths, name+" (not planned)")
		case other[name] == nil:
			paths = append(paths, name+" (missing)")
		default:
			paths = append(paths, differ(prefix, "", one[name], other[name])...)
		}
	}

	return paths, nil
}

// usualForm is a configuration as Talos itself writes it; not known where a document in it is that of a newer Talos.
func usualForm(text string) (encoded string, known bool) {
	loaded, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		return "", false
	}

	encoded, err = loaded.EncodeString(encoder.WithComments(encoder.CommentsDisabled))

	return encoded, err == nil
}

// readDocuments returns the documents by kind and name; that of version v1alpha1 has none.
func readDocuments(text string) (map[string]object, error) {
	documents := map[string]object{}
	decoder := yaml.NewDecoder(strings.NewReader(text))

	for {
		var document object

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return nil, errConfiguration // its own words quote the text
		}

		if document == nil {
			continue
		}

		kind, _ := document["kind"].(string)
		if name, ok := document["name"].(string); ok && kind != "" {
			kind += " " + name
		}

		documents[kind] = document
	}

	if len(documents) == 0 {
		return nil, errConfiguration
	}

	return documents, nil
}

// differ returns the paths below which two values differ. A list that has grown or shrunk differs as a whole; an empty
// one is none.
func differ(prefix, path string, one, other any) []string {
	if reflect.DeepEqual(one, other) || isEmpty(one) && isEmpty(other) {
		return nil
	}

	var paths []string

	switch one := one.(type) {
	case object:
		other, ok := other.(object)
		if !ok {
			break
		}

		for _, key := range slices.Sorted(maps.Keys(union(one, other))) {
			paths = append(paths, differ(prefix, below(path, key), one[key], other[key])...)
		}

		return paths
	case []any:
		other, ok := other.([]any)
		if !ok || len(one) != len(other) {
			break
		}

		for i := range one {
			paths = append(paths, differ(prefix, fmt.Sprintf("%s[%d]", path, i), one[i], other[i])...)
		}

		return paths
	}

	return []string{prefix + cmp.Or(path, "all of it")}
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case object:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return false
	}
}

// below is a key's path; one that has dots in it is quoted.
func below(path, key string) string {
	if strings.ContainsAny(key, ". []") {
		return fmt.Sprintf("%s[%q]", path, key)
	}

	if path == "" {
		return key
	}

	return path + "." + key
}

func union[V any](one, other map[string]V) map[string]V {
	all := maps.Clone(one)
	maps.Copy(all, other)

	return all
}
